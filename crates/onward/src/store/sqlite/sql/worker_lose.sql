-- Marks a worker lost: from here on every write under its leases is refused.
update onward_workers
set lost = 1
where id = ?1
