-- The run that has a key, and whether it still has it. Nobody else gives the key away meanwhile.
select
    run,
    fingerprint,
    expires_at is null or expires_at > $3
from onward.keys
where workflow = $1
    and key = $2
for update
