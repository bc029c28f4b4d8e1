-- Keeps the pause of the run that this one goes on for.
update onward_runs
set
    paused_at = ?2,
    paused_by = ?3
where no = ?1
