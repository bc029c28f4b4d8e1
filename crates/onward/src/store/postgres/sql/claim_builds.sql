-- The builds of the earlier attempts of what a claim took.
select
    run,
    attempt,
    build
from onward.attempts
where run = any ($1)
