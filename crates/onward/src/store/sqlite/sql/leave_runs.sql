-- Queues whatever a leaving worker holds, without counting a crash.
update onward_runs
set
    state = 'queued',
    worker = null,
    ticket = null,
    due_at = ?2,
    wakes = wakes + 1
where state = 'running'
    and worker = ?1
returning id
