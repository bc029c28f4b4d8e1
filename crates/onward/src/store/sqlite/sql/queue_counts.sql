-- Running runs by queue.
select queue, count(*)
from onward_runs
where state = 'running'
group by queue
