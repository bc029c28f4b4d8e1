-- Lines of a run's log, in order, after one of them.
select no, at, step, try_number, text
from onward_log
where run = ?1
    and no > ?2
order by no
limit ?3
