-- Keys whose time is over, a few of them.
select key
from onward_step_keys
where until <= ?1
order by until
limit ?2
