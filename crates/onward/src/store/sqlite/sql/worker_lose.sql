-- Marks a worker lost: from here on every write under its leases is refused.
update onward_workers
set lost_at = ?2
where id = ?1
    and lost_at is null
