-- Schedules, each whole in one row: `next_at` is the next time that nothing was done about, and
-- whoever fires moves it on in the transaction that starts the runs. The latest run is known by its
-- key. Schedules are few and are changed seldom, so that a wide row does no harm.

create table onward.schedules (
    name text collate "C" primary key,
    spec text not null,
    workflow text not null,
    input text not null,
    queue text not null,
    priority integer not null,
    timeout_ms bigint,
    tags text,
    overlap text not null,
    catch_up text not null,
    generation integer not null,
    created_at bigint not null,
    changed_at bigint not null,
    paused_at bigint,
    next_at bigint,
    latest_at bigint,
    latest_workflow text,
    latest_key text
);

create index schedules_due on onward.schedules (next_at)
where paused_at is null and next_at is not null;
