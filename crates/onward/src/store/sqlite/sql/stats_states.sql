-- Runs by state, each state counted over its own index.
select 'queued', count(*)
from onward_runs
where state = 'queued'
    and crashes < 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
union all
select 'queued', count(*)
from onward_runs
where state = 'queued'
    and crashes >= 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
union all
select 'queued', count(*)
from onward_runs
where state = 'queued'
    and paused_at is null
    and cancel_at is null
    and stuck_builds is not null
union all
select 'queued', count(*)
from onward_runs
where state = 'queued'
    and paused_at is not null
union all
select 'running', count(*)
from onward_runs
where state = 'running'
union all
select 'waiting', count(*)
from onward_runs
where state = 'waiting'
union all
select state, count(*)
from onward_runs
where finished_at is not null
group by state
