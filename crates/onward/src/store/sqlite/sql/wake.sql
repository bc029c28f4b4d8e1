-- Queues the waiting runs whose time has come, longest due first. The due time stays, so that
-- who waited longest is claimed first.
update onward_runs
set
    state = 'queued',
    waits_for = null,
    stuck = null,
    wakes = wakes + 1
where no in (
    select no
    from onward_runs
    where state = 'waiting'
        and due_at <= ?1
    order by due_at, id
    limit ?2
)
returning id
