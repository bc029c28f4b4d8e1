-- The runs that a worker holds and somebody asked to end, or paused.
select
    id,
    attempt,
    cancel_at is not null
from onward_runs
where state = 'running'
    and (cancel_at is not null or paused_at is not null)
    and worker = ?1
