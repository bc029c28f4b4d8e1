-- When the next schedule comes that is not due yet.
select min(next_at)
from onward.schedules
where paused_at is null
    and next_at > $1
