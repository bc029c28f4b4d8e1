-- Step keys: work that executes once over all runs.
--
-- step_keys  one row per key that is not free: who has it or did its work, and what came of it.
--            The token is the number of the hold, and is never given twice.
-- step_key_duplicates  the latest that came second with a key.

create table onward.step_keys (
    key text collate "C" primary key,
    token bigint generated always as identity,
    state text collate "C" not null,
    holder text collate "C" not null,
    attempt integer not null,
    caller text not null,
    fingerprint bytea,
    body text,
    taken_at bigint not null,
    settled_at bigint,
    until bigint,
    duplicates bigint not null
);

create index step_keys_until on onward.step_keys (until)
where until is not null;

create table onward.step_key_duplicates (
    no bigint generated always as identity primary key,
    token bigint not null,
    holder text collate "C" not null,
    at bigint not null,
    caller text not null,
    same_input boolean not null,
    unique (token, holder)
);
