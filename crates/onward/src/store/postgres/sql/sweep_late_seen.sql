-- Notes that a sweep has seen that a run's deadline passed.
update onward.runs
set late_at = deadline_at
where id = $1
