-- The runs that a worker holds and somebody asked to end, or paused. Never both: a cancel takes the
-- pause away, and a run that is asked to end is not paused.
select
    id,
    attempt,
    1
from onward_runs
where state = 'running'
    and cancel_at is not null
    and worker = ?1
union all
select
    id,
    attempt,
    0
from onward_runs
where state = 'running'
    and paused_at is not null
    and worker = ?1
