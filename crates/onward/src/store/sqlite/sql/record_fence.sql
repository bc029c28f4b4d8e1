-- The fence's second half: who holds a run, in which attempt.
select
    no,
    state,
    attempt,
    worker
from onward_runs
where id = ?1
