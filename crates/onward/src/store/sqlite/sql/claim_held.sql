-- The number of a run that a worker holds in an attempt.
select no
from onward_runs
where id = ?1 and state = 'running' and worker = ?2 and attempt = ?3
