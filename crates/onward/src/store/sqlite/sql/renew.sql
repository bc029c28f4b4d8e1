-- Renews a lease. A lost one is never revived.
update onward_workers
set lease_until = ?2 + lease_ms
where id = ?1
    and lost_at is null
returning lease_until
