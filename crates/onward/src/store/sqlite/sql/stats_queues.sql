-- Queued runs by queue, and when the one that waits longest was due: one that is paused does not wait.
select queue, count(*), min(due_at)
from onward_runs
where state = 'queued'
    and crashes < 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
group by queue
union all
select queue, count(*), min(due_at)
from onward_runs
where state = 'queued'
    and crashes >= 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
group by queue
union all
select queue, count(*), min(due_at)
from onward_runs
where state = 'queued'
    and paused_at is null
    and cancel_at is null
    and stuck_builds is not null
group by queue
union all
select queue, count(*), null
from onward_runs
where state = 'queued'
    and paused_at is not null
group by queue
