-- The next lane of one workflow in a queue that has queued runs, by name. Asked from lane to lane, it
-- skips their runs.
select lane
from onward_runs
where state = 'queued'
    and lane is not null
    and crashes < 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
    and queue = ?1
    and workflow = ?2
    and lane > ?3
order by lane
limit 1
