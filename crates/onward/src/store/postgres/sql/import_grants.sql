-- Adds whose turn was last, and what was granted, of a queue in another store.
with turn as (
    update onward.queues
    set last_lane = $2
    where name = $1
)
insert into onward.grants (queue, at, count)
select $1, g.at, g.count
from unnest($3, $4) g (at, count)
