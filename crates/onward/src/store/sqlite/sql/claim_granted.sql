-- What was granted of a queue within a time, and when first.
select
    coalesce(sum(count), 0),
    min(at)
from onward_grants
where queue = ?1
    and at > ?2
    and at <= ?3
