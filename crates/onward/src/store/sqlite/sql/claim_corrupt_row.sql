-- What is left of a run that cannot be read.
select
    stuck_builds,
    id
from runs
where no = ?1
