-- The builds of a run's ended attempts.
select
    attempt,
    build
from attempts
where run = ?1
order by attempt
