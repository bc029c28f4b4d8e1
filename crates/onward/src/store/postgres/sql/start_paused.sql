-- Keeps the pause of the run that this one goes on for.
update onward.runs
set
    paused_at = $2,
    paused_by = $3
where id = $1
