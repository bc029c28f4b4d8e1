-- The logs of these runs, in order.
select no, at, step, try_number, text, run
from onward.log
where run = any ($1)
order by run, no
