-- The workers that are not lost, and how many runs each holds.
select
    id,
    build,
    place,
    queues,
    workflows,
    lease_until,
    (select count(*) from onward_runs where state = 'running' and worker = onward_workers.id),
    concurrency
from onward_workers
where lost_at is null
order by id
