-- The lane of a run.
select lane
from onward_runs
where no = ?1
