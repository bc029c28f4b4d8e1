-- Queued runs by queue, and when the one that waits longest was due: one that is paused does not wait.
select queue, count(*), min(due_at) filter (where paused_at is null)
from onward.runs
where state = 'queued'
group by queue
