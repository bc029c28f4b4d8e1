-- Whether children of a run are still to be asked to end.
select 1
from onward_runs
where no = ?1
    and cascades is not null
