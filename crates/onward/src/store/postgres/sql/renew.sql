-- Renews a lease, and tells the time. A lost one is never revived.
update onward.workers
set lease_until = onward.now_ms($2) + lease_ms
where id = $1
    and lost_at is null
returning lease_until, lease_until - lease_ms
