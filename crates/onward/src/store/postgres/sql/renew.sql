-- Renews a lease, and tells the time, what the worker holds, and whether the server is another than the one
-- that it joined. A lost one is never revived.
with held as (
    select
        coalesce(array_agg(r.id order by r.id), '{}') as runs,
        coalesce(array_agg(r.attempt order by r.id), '{}') as attempts
    from onward.runs r
    where r.state = 'running'
        and r.worker = $1
)
update onward.workers w
set lease_until = onward.now_ms($2) + w.lease_ms
from held
where w.id = $1
    and w.lost_at is null
returning w.lease_until, w.lease_until - w.lease_ms, held.runs, held.attempts,
    coalesce(w.server <> onward.server(), false)
