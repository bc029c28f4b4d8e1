-- The runs that a worker holds and somebody asked to end.
select
    id,
    attempt
from runs
where state = 'running'
    and cancel_at is not null
    and worker = ?1
