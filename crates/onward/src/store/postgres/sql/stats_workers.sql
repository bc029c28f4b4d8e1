-- The workers that are not lost, and how many runs each holds.
select
    id,
    build,
    place,
    queues,
    workflows,
    lease_until,
    (select count(*) from onward.runs r where r.state = 'running' and r.worker = w.id),
    concurrency
from onward.workers w
where lost_at is null
order by id
