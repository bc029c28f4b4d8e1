-- The runs that a worker holds.
select
    id,
    attempt
from onward_runs
where state = 'running'
    and worker = ?1
