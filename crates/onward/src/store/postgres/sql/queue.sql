-- A queue that is set up, whole: the columns that queues.rs reads, in its order.
select
    name,
    concurrency,
    per_worker,
    rate_count,
    rate_period_ms,
    per_lane,
    paused_at,
    changed_at,
    last_lane
from onward.queues
