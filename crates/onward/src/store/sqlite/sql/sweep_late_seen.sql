-- Notes that a sweep has seen that a run's deadline passed.
update onward_runs
set late_at = deadline_at
where no = ?1
