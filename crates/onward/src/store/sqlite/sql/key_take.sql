-- Takes a key that is free, under a token of its own.
insert into onward_step_keys
    (key, state, holder, attempt, caller, fingerprint, taken_at, until, duplicates)
values (?1, 'held', ?2, ?3, ?4, ?5, ?6, ?7, 0)
returning token
