-- How many starts were suppressed for a run.
select duplicates
from onward.runs
where id = $1
