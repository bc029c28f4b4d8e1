-- The traces of runs' ended attempts.
select
    run,
    attempt,
    build,
    settled
from onward.attempts
where run = any ($1)
