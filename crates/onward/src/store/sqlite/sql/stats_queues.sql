-- Queued runs by queue.
select queue, count(*)
from onward_runs
where state = 'queued'
    and crashes < 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
group by queue
union all
select queue, count(*)
from onward_runs
where state = 'queued'
    and crashes >= 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
group by queue
union all
select queue, count(*)
from onward_runs
where state = 'queued'
    and paused_at is null
    and cancel_at is null
    and stuck_builds is not null
group by queue
union all
select queue, count(*)
from onward_runs
where state = 'queued'
    and paused_at is not null
group by queue
