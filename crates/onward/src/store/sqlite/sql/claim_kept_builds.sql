-- The next set of builds, in order, that queued runs are kept off.
select min(stuck_builds)
from onward_runs
where state = 'queued'
    and paused_at is null
    and cancel_at is null
    and stuck_builds > ?1
