-- Queued runs by queue, and when the one that waits longest was due.
select queue, count(*), min(due_at)
from onward.runs
where state = 'queued'
group by queue
