-- What was granted of a queue, by time.
select at, count
from onward.grants
where queue = $1
order by at
