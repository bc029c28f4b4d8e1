-- The suppressed starts that are kept, newest first.
select
    at,
    caller,
    same_input
from onward.duplicates
where run = $1
order by no desc
