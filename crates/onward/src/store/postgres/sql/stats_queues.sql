-- Queued runs by queue.
select queue, count(*)
from onward.runs
where state = 'queued'
group by queue
