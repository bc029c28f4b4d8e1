-- What a worker serves, and its build.
select
    build,
    queues,
    workflows
from onward_workers
where id = ?1
