-- Lets one process at a time migrate. The lock ends with the transaction.
select pg_advisory_xact_lock(hashtextextended('onward.schema', 7777))
