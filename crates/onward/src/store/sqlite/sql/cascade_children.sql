-- Children of cancelled runs that nobody has asked to end. From the parents, which are few: left to itself,
-- the planner walks every run there is.
select c.id
from onward_runs p indexed by onward_runs_cascades
cross join onward_runs c
where p.cascades is not null
    and c.parent = p.id
    and c.parent is not null
    and c.finished_at is null
    and c.detached = 0
    and c.cancel_at is null
order by p.id
limit ?1
