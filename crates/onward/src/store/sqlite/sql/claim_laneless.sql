-- The ordinary runs of one workflow in one queue that have no lane, in the order of claims. Looks no
-- further than at so many queued runs.
select
    no,
    priority,
    due_at,
    id
from (
    select no, priority, due_at, id, lane
    from onward_runs
    where state = 'queued'
        and crashes < 3
        and paused_at is null
        and (stuck_builds is null or cancel_at is not null)
        and queue = ?1
        and workflow = ?2
    order by priority desc, due_at, id
    limit ?3
)
where lane is null
order by priority desc, due_at, id
limit ?4
