-- Keys whose time is over, and holds that are over for so long that their holder is gone: a few of
-- them, and none that somebody is about to take.
select key
from onward.step_keys
where until <= $1
    and (state <> 'held' or until <= $3)
order by until
limit $2
for update skip locked
