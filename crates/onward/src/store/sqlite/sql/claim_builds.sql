-- The builds of a run's ended attempts.
select
    attempt,
    build
from onward_attempts
where run = ?1
order by attempt
