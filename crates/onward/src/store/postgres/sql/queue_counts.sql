-- Running runs by queue.
select queue, count(*)
from onward.runs
where state = 'running'
group by queue
