-- How many starts were suppressed for a run.
select
    no,
    duplicates
from runs
where id = ?1
