-- Step keys: work that executes once over all runs.
--
-- onward_step_keys  one row per key that is not free: who has it or did its work, and what came of
--                   it. The token is the number of the hold, and is never given twice.
-- onward_step_key_duplicates  the latest that came second with a key.

create table onward_step_keys (
    token integer primary key autoincrement,
    key text not null,
    state text not null,
    holder text not null,
    attempt integer not null,
    caller text not null,
    fingerprint blob,
    body text,
    taken_at integer not null,
    settled_at integer,
    until integer,
    duplicates integer not null
) strict;

create unique index onward_step_keys_key on onward_step_keys (key);

create index onward_step_keys_until on onward_step_keys (until)
where until is not null;

create table onward_step_key_duplicates (
    no integer primary key,
    token integer not null,
    holder text not null,
    at integer not null,
    caller text not null,
    same_input integer not null
) strict;

create unique index onward_step_key_duplicates_holder
on onward_step_key_duplicates (token, holder);
