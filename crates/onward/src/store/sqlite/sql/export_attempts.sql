-- The traces of a run's ended attempts.
select
    attempt,
    build,
    settled
from onward_attempts
where run = ?1
order by attempt
