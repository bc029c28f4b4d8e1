-- Lets a run go that has not ended: it waits or is queued.
update onward_runs
set
    state = ?2,
    due_at = ?3,
    waits_for = ?4,
    stuck = ?5,
    stuck_builds = ?6,
    wakes = wakes + ?7,
    worker = null,
    ticket = null,
    crashes = 0,
    retried_at = null
where no = ?1
