-- Has whoever sets a queue up for the first time wait for this transaction: see `queue_first.sql`.
select pg_advisory_xact_lock_shared(hashtextextended('onward.queues', 7777))
