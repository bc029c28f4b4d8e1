-- What a worker serves, and its build.
select
    build,
    queues,
    workflows
from workers
where id = ?1
