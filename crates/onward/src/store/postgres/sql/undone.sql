-- Whether the undo of a run has begun.
select 1
from onward.records
where run = $1
    and step = '$undo'
limit 1
