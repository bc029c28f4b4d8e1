-- Locks the queue until the transaction ends, so that no claim from it goes on meanwhile; follows
-- queue_by_name.sql.
for update
