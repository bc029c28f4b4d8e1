-- The running runs of a queue by worker, and those of them that are in a lane.
select
    worker,
    count(*),
    count(*) filter (where lane = $2)
from onward.runs
where state = 'running'
    and queue > ''
    and queue = $1
    and worker is not null
group by worker
order by worker
