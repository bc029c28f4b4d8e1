-- A run's hold on its key; no row when another run has it, or none.
select
    fingerprint,
    expires_at
from onward_keys
where workflow = ?1
    and key = ?2
    and run = ?3
