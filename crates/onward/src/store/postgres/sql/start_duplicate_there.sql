-- Whether a start met this run before.
select 1
from onward.duplicates
where run = $1
    and start = $2
