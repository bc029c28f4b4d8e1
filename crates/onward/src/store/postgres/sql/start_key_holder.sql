-- The run that has a key now. An expired key has no holder.
select
    run,
    fingerprint
from onward.keys
where workflow = $1
    and key = $2
    and (expires_at is null or expires_at > (select onward.now_ms($3)))
