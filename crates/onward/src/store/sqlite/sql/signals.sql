-- The signals of a run after one of them, in the order in which they came.
select no, name, step, key, fingerprint, body, at
from onward_signals
where run = ?1 and no > ?2
order by no
