-- Children of cancelled runs that nobody has asked to end.
select c.id
from onward_runs p
join onward_runs c on c.parent = p.id
where p.cascades is not null
    and c.parent is not null
    and c.finished_at is null
    and c.detached = 0
    and c.cancel_at is null
order by c.id
limit ?1
