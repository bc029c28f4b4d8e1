-- The runs that went on as cancelled ones.
select b.no
from onward_runs p
join onward_runs b on b.id = p.continued_from
where p.cascades is not null
order by b.no
