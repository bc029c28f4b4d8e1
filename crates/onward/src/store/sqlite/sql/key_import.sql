-- Adds a key as it was elsewhere, under a token that is higher than any here and than it had there.
insert into onward_step_keys
    (token, key, state, holder, attempt, caller, fingerprint, body, taken_at, settled_at, until,
    duplicates)
values (
    max(?1, coalesce((select seq from sqlite_sequence where name = 'onward_step_keys'), 0)) + 1,
    ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12
)
