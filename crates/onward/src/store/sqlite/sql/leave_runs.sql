-- Queues what a leaving worker holds, up to so many runs, without counting a crash.
update onward_runs
set
    state = 'queued',
    worker = null,
    ticket = null,
    due_at = ?2,
    wakes = wakes + 1
where no in (
    select no
    from onward_runs
    where state = 'running'
        and worker = ?1
    order by ticket, no
    limit ?3
)
returning id
