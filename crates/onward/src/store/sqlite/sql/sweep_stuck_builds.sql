-- The next set of builds, in order, under which runs are stuck.
select min(stuck_builds)
from onward_runs
where stuck is not null
    and stuck_builds > ?1
