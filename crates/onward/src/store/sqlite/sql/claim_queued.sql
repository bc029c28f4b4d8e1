-- The ordinary runs of one workflow in one queue that any build may claim, in the order of claims.
-- Walks its own partial index: finished and waiting runs are never seen.
select
    no,
    priority,
    due_at,
    id
from onward_runs
where state = 'queued'
    and crashes < 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
    and queue = ?1
    and workflow = ?2
order by priority desc, due_at, id
limit ?3
