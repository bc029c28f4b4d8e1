-- How many runs of a queue are running, and how many of them a worker has. It holds a slot until its
-- end, or until its dead worker is swept.
select
    count(*),
    count(*) filter (where worker = ?2)
from onward_runs
where state = 'running'
    and queue > ''
    and queue = ?1
