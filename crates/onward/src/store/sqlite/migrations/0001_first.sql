-- The first schema.
--
-- The file may be the user's own, so every table and index is named onward_ and what it is:
--
-- schema    one row: how many migrations the file has had.
-- runs      one narrow row per run: what is claimed, fenced, woken and swept. No payloads.
-- inputs    what a run was started with, and its tags. Written once.
-- outputs   what a run ended with. Written once, deleted by a retry.
-- records   the histories, in the order of arrival.
-- attempts  the trace of each ended attempt. An attempt that ended its run has none: the
--           finished run's own row is its trace, until a retry writes it here.
-- keys      which run has a key.
-- duplicates  the latest starts that a key suppressed.
-- tags      what a list by tag searches.
-- workers   who may hold runs. `lost_at` is the only truth about that.
--
-- Inside, a run is its number `no`; outside it is its `id`. Times are milliseconds since 1970.

create table onward_schema (
    version integer not null
) strict;

insert into onward_schema (version) values (0);

create table onward_runs (
    no integer primary key,
    id blob not null,
    state text not null,
    attempt integer not null,
    worker blob,
    ticket integer,
    wakes integer not null,
    crashes integer not null,
    priority integer not null,
    due_at integer,
    cancel_at integer,
    paused_at integer,
    finished_at integer,
    workflow text not null,
    queue text not null,
    build text,
    successor blob,
    waits_for text,
    stuck text,
    stuck_builds text,
    key text,
    created_at integer not null,
    started_at integer,
    deadline_at integer,
    retried_at integer,
    failed_step text,
    duplicates integer not null,
    continued_from blob,
    continued_as blob,
    code_change text
) strict;

create unique index onward_runs_id on onward_runs (id);

-- Queued runs that any build may claim.
create index onward_runs_queued on onward_runs (queue, workflow, priority desc, due_at, id)
where state = 'queued' and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

create index onward_runs_suspect on onward_runs (queue, workflow, priority desc, due_at, id)
where state = 'queued' and crashes >= 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

-- Queued runs that got stuck under some builds, by these: a claim steps over those it is kept off.
create index onward_runs_kept
on onward_runs (stuck_builds, (crashes >= 3), queue, workflow, priority desc, due_at, id)
where state = 'queued' and paused_at is null and stuck_builds is not null and cancel_at is null;

create index onward_runs_paused on onward_runs (queue)
where state = 'queued' and paused_at is not null;

create index onward_runs_waiting on onward_runs (due_at, id)
where state = 'waiting';

create index onward_runs_running on onward_runs (worker, ticket)
where state = 'running';

create index onward_runs_marked on onward_runs (worker)
where state = 'running' and cancel_at is not null;

create index onward_runs_stuck on onward_runs (stuck_builds, queue, workflow, id)
where stuck is not null;

create index onward_runs_late on onward_runs (deadline_at, id)
where stuck_builds is not null and deadline_at is not null
    and (state = 'queued' or state = 'waiting');

create index onward_runs_finished on onward_runs (state, finished_at, id)
where finished_at is not null;

create index onward_runs_key on onward_runs (key, id)
where key is not null;

create table onward_inputs (
    no integer primary key,
    input text not null,
    tags text
) strict;

create table onward_outputs (
    no integer primary key,
    output text,
    failure text
) strict;

create table onward_records (
    no integer primary key,
    run integer not null,
    seq integer not null,
    step text not null,
    slot integer not null,
    kind text not null,
    body text,
    try_number integer not null,
    attempt integer not null,
    began_at integer not null,
    at integer not null,
    next_at integer,
    foreign_await integer not null,
    voided_at integer
) strict;

-- `slot` is 0 for the record that ends its step, and the record's seq for any other or a voided
-- one. So this one index lets a step end once, and finds a repeated record.
create unique index onward_records_step on onward_records (run, step, slot);

create table onward_attempts (
    run integer not null,
    attempt integer not null,
    build text not null,
    settled text,
    primary key (run, attempt)
) strict, without rowid;

create table onward_keys (
    workflow text not null,
    key text not null,
    run integer not null,
    fingerprint blob not null,
    expires_at integer,
    primary key (workflow, key)
) strict, without rowid;

create table onward_duplicates (
    no integer primary key,
    run integer not null,
    start blob not null,
    at integer not null,
    caller text not null,
    same_input integer not null
) strict;

create index onward_duplicates_run on onward_duplicates (run);

create table onward_tags (
    name text not null,
    value text not null,
    run integer not null,
    primary key (name, value, run)
) strict, without rowid;

create table onward_workers (
    id blob primary key,
    build text not null,
    place text not null,
    queues text not null,
    workflows text not null,
    lease_ms integer not null,
    lease_until integer not null,
    lost_at integer
) strict, without rowid;

create index onward_workers_live on onward_workers (id)
where lost_at is null;

create index onward_workers_lost on onward_workers (lost_at)
where lost_at is not null;
