-- Runs by state.
select state, count(*)
from onward.runs
group by state
