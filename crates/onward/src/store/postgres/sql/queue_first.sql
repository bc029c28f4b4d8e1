-- Waits for the claims, and the starts that claim, that did not see this queue, and lets none begin before the
-- transaction ends. Each of them shares this lock: a queue that is set up for the first time has no row of its own yet to lock.
select pg_advisory_xact_lock(hashtextextended('onward.queues', 7777))
