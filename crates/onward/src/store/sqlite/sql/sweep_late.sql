-- Opens stuck runs whose deadline has passed to every build: they are to end. What cannot be read
-- cannot be ended either.
update onward_runs
set
    state = 'queued',
    due_at = ?1,
    waits_for = null,
    stuck = null,
    stuck_builds = null,
    wakes = wakes + 1,
    paused_at = null,
    paused_by = null
where no in (
    select no
    from onward_runs
    where stuck_builds is not null
        and deadline_at <= ?1
        and (state = 'queued' or state = 'waiting')
        and (stuck is null or stuck <> 'corrupt_record')
    order by deadline_at, id
    limit ?2
)
returning id
