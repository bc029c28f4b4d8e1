-- Those that came second with a key, newest first.
select
    at,
    caller,
    same_input
from onward.step_key_duplicates
where token = $1
order by no desc
