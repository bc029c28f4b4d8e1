-- The run that a gathered start met before.
select
    run,
    created_at
from onward.gathered
where start = $1
