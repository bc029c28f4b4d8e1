-- The starts that runs' keys suppressed, as far as they are kept, oldest first.
select
    run,
    start,
    at,
    caller,
    same_input
from onward.duplicates
where run = any ($1)
order by no
