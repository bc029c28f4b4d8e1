-- The starts that a run's key suppressed, as far as they are kept, oldest first.
select
    start,
    at,
    caller,
    same_input
from onward_duplicates
where run = ?1
order by no
