-- Running runs by queue.
select queue, count(*)
from onward_runs
where state = 'running'
    and queue > ''
group by queue
