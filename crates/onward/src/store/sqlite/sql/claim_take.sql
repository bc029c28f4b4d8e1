-- Gives a queued run to a worker, in a new attempt.
update onward_runs
set
    state = 'running',
    attempt = attempt + 1,
    worker = ?2,
    ticket = ?3,
    build = ?4,
    due_at = null,
    waits_for = null,
    started_at = coalesce(started_at, ?5)
where no = ?1
