-- The runs that a worker holds and somebody asked to end.
select
    id,
    attempt
from onward_runs
where state = 'running'
    and cancel_at is not null
    and worker = ?1
