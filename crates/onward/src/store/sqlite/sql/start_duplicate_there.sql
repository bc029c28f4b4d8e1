-- Whether a start met this run before.
select 1
from onward_duplicates
where run = ?1
    and start = ?2
