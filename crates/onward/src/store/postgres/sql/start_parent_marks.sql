-- When the parent of a child must have ended, and whether it is asked to. A cancel of it comes before this
-- start or after it: a child that it does not see would not be asked to end.
select
    deadline_at,
    cancel_at is not null
from onward.runs
where id = $1
for share
