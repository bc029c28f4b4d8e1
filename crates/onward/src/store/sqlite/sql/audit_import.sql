-- Adds a row of the audit as it stood in another store, once.
insert into onward_audit (id, at, who, role, action, target, detail, outcome)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
on conflict (id) do nothing
