-- Ends a run. Its row, final with this attempt, is the attempt's trace.
update onward_runs
set
    state = ?2,
    finished_at = ?3,
    due_at = null,
    paused_at = null,
    paused_by = null,
    waits_for = null,
    stuck = null,
    worker = null,
    ticket = null,
    crashes = 0,
    retried_at = null,
    failed_step = ?4,
    continued_as = ?5,
    successor = ?6
where no = ?1
