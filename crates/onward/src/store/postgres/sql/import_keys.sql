-- Gives imported runs their keys. An expired holder loses its key by this; a live one keeps it, and
-- then there is no row for that key.
insert into onward.keys (workflow, key, run, fingerprint, expires_at)
select *
from unnest($1, $2, $3, $4, $5)
on conflict (workflow, key) do update
set
    run = excluded.run,
    fingerprint = excluded.fingerprint,
    expires_at = excluded.expires_at
where keys.expires_at <= $6
returning 1
