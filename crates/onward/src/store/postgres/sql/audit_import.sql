-- Adds rows of the audit as they stood in another store, each once; answers those that were not there.
insert into onward.audit (id, at, who, role, action, target, detail, outcome)
select *
from unnest($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (id) do nothing
returning id
