-- Adds a run. Its id is unique, so a run is never added twice.
insert into onward_runs (
    id, state, attempt, worker, wakes, crashes, priority, due_at, workflow, queue, build,
    successor, waits_for, key, created_at, started_at, deadline_at, duplicates, continued_from,
    lane, notes
)
values (?1, ?2, ?3, ?4, 0, 0, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 0, ?16, ?17, ?18)
