-- Runs that a lost worker holds.
select
    no,
    id
from runs
where state = 'running'
    and worker = ?1
limit ?2
