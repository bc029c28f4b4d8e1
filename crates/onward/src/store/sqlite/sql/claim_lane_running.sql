-- How many runs of a lane are running.
select count(*)
from onward_runs
where state = 'running'
    and queue > ''
    and queue = ?1
    and lane = ?2
