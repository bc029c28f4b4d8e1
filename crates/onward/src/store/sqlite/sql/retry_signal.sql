-- The number, the record and the child of the signal that told of a child's end at this step.
select no, step || '#' || no, key
from onward_signals
where run = ?1
    and step = ?2
order by no
limit 1
