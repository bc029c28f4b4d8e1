-- The running runs of a queue by worker.
select worker, count(*)
from onward_runs
where state = 'running'
    and queue > ''
    and queue = ?1
    and worker is not null
group by worker
order by worker
