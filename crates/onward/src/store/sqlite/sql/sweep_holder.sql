-- The next worker, in order, that holds runs. Asked from holder to holder, it skips their runs.
select min(worker)
from onward_runs
where state = 'running'
    and worker > ?1
