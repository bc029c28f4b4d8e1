-- When the parent of a child must have ended, and whether it is asked to.
select
    deadline_at,
    cancel_at is not null
from onward.runs
where id = $1
