-- The ordinary runs of one workflow in one queue that have no lane, in the order of claims.
select
    no,
    priority,
    due_at,
    id
from onward_runs
where state = 'queued'
    and lane is null
    and crashes < 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
    and queue = ?1
    and workflow = ?2
order by priority desc, due_at, id
limit ?3
