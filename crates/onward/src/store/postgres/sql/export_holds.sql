-- Runs' holds on their keys; no row for one whose key another run has, or none.
select
    k.run,
    k.fingerprint,
    k.expires_at
from onward.runs r
join onward.keys k on k.workflow = r.workflow and k.key = r.key and k.run = r.id
where r.id = any ($1)
