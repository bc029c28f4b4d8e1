-- The fence's second half: who holds a run, in which attempt.
select
    no,
    state,
    attempt,
    worker
from runs
where id = ?1
