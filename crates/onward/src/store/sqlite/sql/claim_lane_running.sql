-- How many runs of a lane are running. More than the last parameter are not counted.
select count(*)
from (
    select 1
    from onward_runs
    where state = 'running'
        and queue = ?1
        and lane = ?2
    limit ?3
)
