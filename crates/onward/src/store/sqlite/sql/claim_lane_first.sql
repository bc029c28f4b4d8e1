-- The first queued runs of one workflow in a lane: those that have begun, then in the order of claims.
select
    no,
    priority,
    due_at,
    id,
    started_at is null
from onward_runs
where state = 'queued'
    and lane is not null
    and crashes < 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
    and queue = ?1
    and workflow = ?2
    and lane = ?3
order by (started_at is null), priority desc, due_at, id
limit ?4
