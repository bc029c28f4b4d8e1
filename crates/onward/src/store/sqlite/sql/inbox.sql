-- The marks of a run.
select no, wakes, cancel_at is not null, paused_at is not null, signals
from onward_runs
where id = ?1
