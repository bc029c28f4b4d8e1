-- Runs of one workflow in one queue that are stuck under this set of builds.
select
    no,
    id
from onward_runs
where stuck is not null
    and stuck_builds = ?1
    and queue = ?2
    and workflow = ?3
order by id
limit ?4
