-- The runs that have these keys now. An expired key has no holder.
select
    k.workflow,
    k.key,
    k.run
from unnest($1, $2) as named (workflow, key)
join onward.keys k on k.workflow = named.workflow and k.key = named.key
where k.expires_at is null
    or k.expires_at > $3
