-- Takes limits and pause from a queue, and forgets what was granted of it.
with removed as (
    delete from onward.queues
    where name = $1
    returning name
), forgotten as (
    delete from onward.grants
    where queue = $1
)
select name
from removed
