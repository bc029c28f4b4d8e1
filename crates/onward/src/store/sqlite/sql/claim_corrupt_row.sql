-- What is left of a run that cannot be read.
select
    stuck_builds,
    id
from onward_runs
where no = ?1
