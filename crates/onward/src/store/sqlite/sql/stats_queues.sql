-- Queued runs by queue.
select queue, count(*)
from onward_runs
where state = 'queued'
    and crashes < 3
    and paused_at is null
group by queue
union all
select queue, count(*)
from onward_runs
where state = 'queued'
    and crashes >= 3
    and paused_at is null
group by queue
union all
select queue, count(*)
from onward_runs
where state = 'queued'
    and paused_at is not null
group by queue
