-- The runs of one workflow in one queue that are kept off these builds, in the order of claims.
select
    no,
    priority,
    due_at,
    id
from onward_runs
where state = 'queued'
    and paused_at is null
    and cancel_at is null
    and stuck_builds = ?4
    and (crashes >= 3) = ?5
    and queue = ?1
    and workflow = ?2
order by priority desc, due_at, id
limit ?3
