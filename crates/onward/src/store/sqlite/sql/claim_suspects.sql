-- Whether any suspect is queued at all, which spares the search by queue and workflow.
select 1
from onward_runs
where state = 'queued'
    and crashes >= 3
    and paused_at is null
limit 1
