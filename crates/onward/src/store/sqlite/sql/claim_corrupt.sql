-- Sets a run aside that cannot be read, so that it holds up no other.
update onward_runs
set
    state = 'waiting',
    worker = null,
    ticket = null,
    due_at = null,
    waits_for = ?2,
    stuck = ?3,
    stuck_builds = ?4
where no = ?1
