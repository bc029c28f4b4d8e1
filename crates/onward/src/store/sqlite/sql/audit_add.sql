-- Keeps a row of the audit, once.
insert into onward_audit (id, at, who, role, action, target)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (id) do nothing
