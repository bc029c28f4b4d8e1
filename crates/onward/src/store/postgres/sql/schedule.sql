-- A schedule, whole: the columns that schedules.rs reads, in its order.
select
    name,
    spec,
    workflow,
    input,
    queue,
    priority,
    timeout_ms,
    tags,
    overlap,
    catch_up,
    generation,
    created_at,
    changed_at,
    paused_at,
    next_at,
    latest_at,
    latest_workflow,
    latest_key,
    lane
from onward.schedules
