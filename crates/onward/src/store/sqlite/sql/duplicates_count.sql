-- How many starts were suppressed for a run.
select
    no,
    duplicates
from onward_runs
where id = ?1
