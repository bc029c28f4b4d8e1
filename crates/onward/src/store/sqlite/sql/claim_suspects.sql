-- Whether any suspect that is kept off no build is queued, which spares the search by place.
select 1
from onward_runs
where state = 'queued'
    and crashes >= 3
    and paused_at is null
    and (stuck_builds is null or cancel_at is not null)
limit 1
