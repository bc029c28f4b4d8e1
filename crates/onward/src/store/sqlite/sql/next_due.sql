-- When the next waiting run wakes.
select due_at
from onward_runs
where state = 'waiting'
    and due_at is not null
order by due_at
limit 1
