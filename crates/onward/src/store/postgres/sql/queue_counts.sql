-- Running runs by queue.
select queue, count(*)
from onward.runs
where state = 'running'
    and queue > ''
group by queue
