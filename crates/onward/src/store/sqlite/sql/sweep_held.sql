-- Runs that a lost worker holds.
select
    no,
    id
from onward_runs
where state = 'running'
    and worker = ?1
limit ?2
