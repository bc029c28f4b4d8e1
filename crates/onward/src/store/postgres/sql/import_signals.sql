-- Adds signals as they stood in another store.
insert into onward.signals (no, name, step, key, fingerprint, body, at, run)
select *
from unnest($1, $2, $3, $4, $5, $6, $7, $8)
