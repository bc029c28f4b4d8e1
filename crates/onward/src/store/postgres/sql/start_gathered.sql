-- The run that a gathered start met before, if it is still there, and no other was made under its id.
select
    g.run,
    g.created_at
from onward.gathered g
join onward.runs r on r.id = g.run and r.created_at = g.created_at
where g.start = $1
