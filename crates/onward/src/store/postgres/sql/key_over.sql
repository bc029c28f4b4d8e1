-- Keys whose time is over, a few of them, and none that somebody is about to take.
select key
from onward.step_keys
where until <= $1
order by until
limit $2
for update skip locked
