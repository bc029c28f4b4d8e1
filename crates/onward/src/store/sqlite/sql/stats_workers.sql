-- The workers that are not lost, and how many runs each holds.
select
    id,
    build,
    place,
    queues,
    workflows,
    lease_until,
    (select count(*) from runs where state = 'running' and worker = workers.id)
from workers
where lost = 0
order by id
