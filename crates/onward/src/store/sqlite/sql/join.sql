-- Enters a worker with a lease that runs from now.
insert into onward_workers (id, build, place, queues, workflows, lease_ms, lease_until, concurrency)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
