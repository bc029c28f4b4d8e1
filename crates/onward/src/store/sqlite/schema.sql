CREATE TABLE onward_attempts (
    run integer not null,
    attempt integer not null,
    build text not null,
    settled text,
    primary key (run, attempt)
) strict, without rowid;

CREATE TABLE onward_audit (
    id blob primary key,
    at integer not null,
    who text not null,
    role text not null,
    action text not null,
    target text not null,
    detail text,
    outcome text
) strict, without rowid;

CREATE TABLE onward_duplicates (
    no integer primary key,
    run integer not null,
    start blob not null,
    at integer not null,
    caller text not null,
    same_input integer not null
) strict;

CREATE INDEX onward_duplicates_run on onward_duplicates (run);

CREATE INDEX onward_duplicates_other on onward_duplicates (no)
where same_input = 0;

CREATE TABLE onward_gathered (
    start blob primary key,
    run blob not null,
    created_at integer not null,
    at integer not null
) strict, without rowid;

CREATE INDEX onward_gathered_at on onward_gathered (at);

CREATE TABLE onward_grants (
    queue text not null,
    at integer not null,
    count integer not null,
    primary key (queue, at)
) strict, without rowid;

CREATE TABLE onward_inputs (
    no integer primary key,
    input text not null,
    tags text
) strict;

CREATE TABLE onward_keys (
    workflow text not null,
    key text not null,
    run integer not null,
    fingerprint blob not null,
    expires_at integer,
    primary key (workflow, key)
) strict, without rowid;

CREATE TABLE onward_log (
    run integer not null,
    no integer not null,
    at integer not null,
    step text,
    try_number integer,
    text text not null,
    primary key (run, no)
) strict, without rowid;

CREATE TABLE onward_outputs (
    no integer primary key,
    output text,
    failure text
) strict;

CREATE TABLE onward_queues (
    name text primary key,
    concurrency integer,
    per_worker integer,
    rate_count integer,
    rate_period_ms integer,
    per_lane integer,
    paused_at integer,
    changed_at integer,
    last_lane text
) strict, without rowid;

CREATE TABLE onward_records (
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

CREATE UNIQUE INDEX onward_records_step on onward_records (run, step, slot);

CREATE TABLE onward_runs (
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
, signals integer not null default 0, parent blob, parent_step text, detached integer not null default 0, cascades integer, paused_by text, forked_from blob, notes text, lane text, late_at integer, signal_bytes integer not null default 0) strict;

CREATE UNIQUE INDEX onward_runs_id on onward_runs (id);

CREATE INDEX onward_runs_queued on onward_runs (queue, workflow, priority desc, due_at, id)
where state = 'queued' and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

CREATE INDEX onward_runs_suspect on onward_runs (queue, workflow, priority desc, due_at, id)
where state = 'queued' and crashes >= 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

CREATE INDEX onward_runs_kept
on onward_runs (stuck_builds, (crashes >= 3), queue, workflow, priority desc, due_at, id)
where state = 'queued' and paused_at is null and stuck_builds is not null and cancel_at is null;

CREATE INDEX onward_runs_paused on onward_runs (queue)
where state = 'queued' and paused_at is not null;

CREATE INDEX onward_runs_waiting on onward_runs (due_at, id)
where state = 'waiting';

CREATE INDEX onward_runs_running on onward_runs (worker, ticket)
where state = 'running';

CREATE INDEX onward_runs_marked on onward_runs (worker)
where state = 'running' and cancel_at is not null;

CREATE INDEX onward_runs_stuck on onward_runs (stuck_builds, queue, workflow, id)
where stuck is not null;

CREATE INDEX onward_runs_finished on onward_runs (state, finished_at, id)
where finished_at is not null;

CREATE INDEX onward_runs_key on onward_runs (key, id)
where key is not null;

CREATE INDEX onward_runs_child on onward_runs (parent, id)
where parent is not null and finished_at is null and detached = 0;

CREATE INDEX onward_runs_cascades on onward_runs (id)
where cascades is not null;

CREATE INDEX onward_runs_pausing on onward_runs (worker)
where state = 'running' and paused_at is not null;

CREATE INDEX onward_runs_slots on onward_runs (queue, lane, worker)
where state = 'running' and queue > '';

CREATE INDEX onward_runs_lanes
on onward_runs (queue, workflow, lane, (started_at is null), priority desc, due_at, id)
where state = 'queued' and lane is not null and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

CREATE INDEX onward_runs_duplicated on onward_runs (duplicates, id)
where duplicates > 0;

CREATE INDEX onward_runs_laneless on onward_runs (queue, workflow, lane, priority desc, due_at, id)
where state = 'queued' and lane is null and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

CREATE INDEX onward_runs_children on onward_runs (parent, id)
where parent is not null;

CREATE INDEX onward_runs_late on onward_runs (deadline_at, id)
where deadline_at is not null and late_at is not deadline_at and cancel_at is null
    and (state = 'queued' or state = 'waiting')
    and (stuck is null or stuck <> 'corrupt_record');

CREATE TABLE onward_schedules (
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
, lane text) strict;

CREATE INDEX onward_schedules_due on onward_schedules (next_at)
where paused_at is null and next_at is not null;

CREATE TABLE onward_schema (
    version integer not null
) strict;

CREATE TABLE onward_signals (
    run integer not null,
    no integer not null,
    name text not null,
    step text not null,
    key text not null,
    fingerprint blob not null,
    body text not null,
    at integer not null,
    primary key (run, no)
) strict, without rowid;

CREATE UNIQUE INDEX onward_signals_key on onward_signals (run, name, key);

CREATE TABLE onward_step_key_duplicates (
    no integer primary key,
    token integer not null,
    holder text not null,
    at integer not null,
    caller text not null,
    same_input integer not null
) strict;

CREATE UNIQUE INDEX onward_step_key_duplicates_holder
on onward_step_key_duplicates (token, holder);

CREATE TABLE onward_step_keys (
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

CREATE UNIQUE INDEX onward_step_keys_key on onward_step_keys (key);

CREATE INDEX onward_step_keys_until on onward_step_keys (until)
where until is not null;

CREATE TABLE onward_tags (
    name text not null,
    value text not null,
    run integer not null,
    primary key (name, value, run)
) strict, without rowid;

CREATE TABLE onward_workers (
    id blob primary key,
    build text not null,
    place text not null,
    queues text not null,
    workflows text not null,
    lease_ms integer not null,
    lease_until integer not null,
    lost_at integer
, concurrency integer) strict, without rowid;

CREATE INDEX onward_workers_live on onward_workers (id)
where lost_at is null;

CREATE INDEX onward_workers_lost on onward_workers (lost_at)
where lost_at is not null;

CREATE TABLE sqlite_sequence(name,seq);

