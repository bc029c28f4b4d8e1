-- The signals of these runs, in order.
select no, name, step, key, fingerprint, body, at, run
from onward.signals
where run = any ($1)
order by run, no
