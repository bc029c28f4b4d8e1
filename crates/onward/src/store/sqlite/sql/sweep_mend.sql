-- Queues a stuck run for a build that may mend it.
update onward_runs
set
    state = 'queued',
    worker = null,
    ticket = null,
    due_at = ?2,
    waits_for = null,
    stuck = null,
    wakes = wakes + 1,
    crashes = 0
where no = ?1
