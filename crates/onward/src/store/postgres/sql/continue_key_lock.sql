-- Locks the key of a run before the run itself, as a start does that meets the key: in the other
-- order the two would wait for each other.
select 1
from onward.keys k
join onward.runs r on r.workflow = k.workflow and r.key = k.key and r.id = k.run
where r.id = $1
for update of k
