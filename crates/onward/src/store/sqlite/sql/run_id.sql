-- The id of a run, without the rest of its row.
select id
from onward_runs
where no = ?1
