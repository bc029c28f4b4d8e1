-- Schedules, each whole in one row: `next_at` is the next time that nothing was done about, and
-- whoever fires moves it on in the transaction that starts the runs. The latest run is known by its
-- key. Schedules are few and are changed seldom, so that a wide row does no harm.

create table onward_schedules (
    name text primary key,
    spec text not null,
    workflow text not null,
    input text not null,
    queue text not null,
    priority integer not null,
    timeout_ms integer,
    tags text,
    overlap text not null,
    catch_up text not null,
    generation integer not null,
    created_at integer not null,
    changed_at integer not null,
    paused_at integer,
    next_at integer,
    latest_at integer,
    latest_workflow text,
    latest_key text
) strict;

create index onward_schedules_due on onward_schedules (next_at)
where paused_at is null and next_at is not null;
