-- Enters a worker with a lease that runs from now, unless it is there.
insert into onward.workers (id, build, place, queues, workflows, lease_ms, lease_until, concurrency, server)
values ($1, $2, $3, $4, $5, $6, onward.now_ms($7) + $6, $8, onward.server())
on conflict (id) do nothing
