-- Adds a key as it was elsewhere.
insert into onward.step_keys
    (key, state, holder, attempt, caller, fingerprint, body, taken_at, settled_at, until, duplicates)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
