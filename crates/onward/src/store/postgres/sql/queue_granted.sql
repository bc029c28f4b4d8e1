-- What was granted of a queue after a time, and when first.
select
    coalesce(sum(count), 0)::bigint,
    min(at)
from onward.grants
where queue = $1
    and at > $2
