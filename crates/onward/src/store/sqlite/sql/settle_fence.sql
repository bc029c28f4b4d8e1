-- Who holds a run, in which attempt, and what its end depends on.
select
    no,
    state,
    attempt,
    worker,
    wakes,
    cancel_at,
    build,
    successor,
    stuck_builds,
    parent is not null,
    queue
from onward_runs
where id = ?1
