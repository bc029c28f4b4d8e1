-- The first schema. It is named onward unless the user chose another name; the store writes that
-- name in place of this one.
--
-- schema    one row: how many migrations the database has had.
-- runs      one narrow row per run: what is claimed, fenced, woken and swept. No payloads.
-- inputs    what a run was started with, and its tags. Written once.
-- outputs   what a run ended with. Written once, deleted by a retry.
-- records   the histories.
-- attempts  the trace of each ended attempt. An attempt that ended its run has none: the
--           finished run's own row is its trace, until a retry writes it here.
-- keys      which run has a key.
-- duplicates  the latest starts that a key suppressed.
-- tags      what a list by tag searches.
-- workers   who may hold runs. `lost_at` is the only truth about that.
--
-- Times are milliseconds since 1970. Payloads are text, which is several times faster to write
-- than jsonb; the view of the same name as its table with _json behind it casts them for people.
-- Texts that are compared in order are compared by their bytes, as in the other stores.

create table onward.schema (
    version integer not null
);

insert into onward.schema (version) values (0);

create table onward.runs (
    id uuid primary key,
    state text collate "C" not null,
    attempt integer not null,
    worker uuid,
    ticket bigint,
    wakes bigint not null,
    crashes integer not null,
    priority integer not null,
    due_at bigint,
    cancel_at bigint,
    paused_at bigint,
    finished_at bigint,
    workflow text collate "C" not null,
    queue text collate "C" not null,
    build text,
    successor uuid,
    waits_for text,
    stuck text,
    stuck_builds text collate "C",
    key text collate "C",
    created_at bigint not null,
    started_at bigint,
    deadline_at bigint,
    retried_at bigint,
    failed_step text,
    duplicates bigint not null,
    continued_from uuid,
    continued_as uuid,
    code_change text
) with (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_analyze_scale_factor = 0.05
);

-- Queued runs that any build may claim.
create index runs_queued on onward.runs (queue, workflow, priority desc, due_at, id)
where state = 'queued' and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

create index runs_suspect on onward.runs (queue, workflow, priority desc, due_at, id)
where state = 'queued' and crashes >= 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

-- Queued runs that got stuck under some builds, by these: a claim steps over those it is kept off.
create index runs_kept
on onward.runs (stuck_builds, (crashes >= 3), queue, workflow, priority desc, due_at, id)
where state = 'queued' and paused_at is null and stuck_builds is not null and cancel_at is null;

create index runs_waiting on onward.runs (due_at, id)
where state = 'waiting' and due_at is not null;

create index runs_running on onward.runs (worker, ticket)
where state = 'running';

create index runs_marked on onward.runs (worker)
where state = 'running' and cancel_at is not null;

create index runs_stuck on onward.runs (stuck_builds, queue, workflow, id)
where stuck is not null;

create index runs_late on onward.runs (deadline_at, id)
where stuck_builds is not null and deadline_at is not null
    and (state = 'queued' or state = 'waiting');

create index runs_finished on onward.runs (state, finished_at, id)
where finished_at is not null;

create index runs_key on onward.runs (key, id)
where key is not null;

create table onward.inputs (
    run uuid primary key,
    input text not null,
    tags text
);

create table onward.outputs (
    run uuid primary key,
    output text,
    failure text
);

-- `slot` is 0 for the record that ends its step, and the record's seq for any other or a voided
-- one. So this one index lets a step end once, and finds a repeated record.
create table onward.records (
    run uuid not null,
    seq bigint not null,
    step text collate "C" not null,
    slot bigint not null,
    kind text collate "C" not null,
    body text,
    try_number integer not null,
    attempt integer not null,
    began_at bigint not null,
    at bigint not null,
    next_at bigint,
    foreign_await boolean not null,
    voided_at bigint,
    primary key (run, step, slot)
);

create table onward.attempts (
    run uuid not null,
    attempt integer not null,
    build text not null,
    settled text,
    primary key (run, attempt)
);

create table onward.keys (
    workflow text collate "C" not null,
    key text collate "C" not null,
    run uuid not null,
    fingerprint bytea not null,
    expires_at bigint,
    primary key (workflow, key)
);

create table onward.duplicates (
    no bigint generated always as identity primary key,
    run uuid not null,
    start uuid not null,
    at bigint not null,
    caller text not null,
    same_input boolean not null,
    unique (run, start)
);

create table onward.tags (
    name text collate "C" not null,
    value text collate "C" not null,
    run uuid not null,
    primary key (name, value, run)
);

create table onward.workers (
    id uuid primary key,
    build text not null,
    place text not null,
    queues text not null,
    workflows text not null,
    lease_ms bigint not null,
    lease_until bigint not null,
    lost_at bigint
) with (fillfactor = 50);

create index workers_lost on onward.workers (lost_at)
where lost_at is not null;

create view onward.runs_json as
select
    r.id,
    r.workflow,
    r.state,
    r.queue,
    r.priority,
    r.key,
    i.input::jsonb as input,
    o.output::jsonb as output,
    o.failure::jsonb as failure,
    r.waits_for::jsonb as waits_for,
    to_timestamp(r.created_at / 1000.0) as created_at,
    to_timestamp(r.due_at / 1000.0) as due_at,
    to_timestamp(r.started_at / 1000.0) as started_at,
    to_timestamp(r.finished_at / 1000.0) as finished_at
from onward.runs r
left join onward.inputs i on i.run = r.id
left join onward.outputs o on o.run = r.id;

create view onward.records_json as
select
    run,
    seq,
    step,
    kind,
    body::jsonb as body,
    try_number,
    attempt,
    to_timestamp(at / 1000.0) as at,
    to_timestamp(voided_at / 1000.0) as voided_at
from onward.records;
