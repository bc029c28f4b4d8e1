-- Writes what may change in a run back to its row. The row was read in the same transaction.
update onward_runs
set
    state = ?2,
    attempt = ?3,
    worker = ?4,
    ticket = ?5,
    wakes = ?6,
    crashes = ?7,
    due_at = ?8,
    cancel_at = ?9,
    finished_at = ?10,
    build = ?11,
    successor = ?12,
    waits_for = ?13,
    stuck = ?14,
    stuck_builds = ?15,
    started_at = ?16,
    deadline_at = ?17,
    retried_at = ?18,
    failed_step = ?19,
    duplicates = ?20,
    continued_as = ?21,
    signals = ?22,
    paused_at = ?23,
    paused_by = ?24,
    notes = ?25
where no = ?1
