-- What was granted of a queue within its period, and when first. What is further ahead than that was
-- granted before the clock was set back.
select
    coalesce(sum(count), 0)::bigint,
    min(at)
from onward.grants
where queue = $1
    and at > (select onward.now_ms($2) - $3)
    and at <= (select onward.now_ms($2) + $3)
