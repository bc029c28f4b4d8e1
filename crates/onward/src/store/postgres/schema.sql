-- What a database has after all migrations, as its catalog tells it. Written by a test, with
-- ONWARD_WRITE_GOLDEN=1.

table attempts (
    run uuid not null,
    attempt integer not null,
    build text not null,
    settled text
);
CREATE UNIQUE INDEX attempts_pkey ON onward.attempts USING btree (run, attempt);

table audit (
    id uuid not null,
    at bigint not null,
    who text not null,
    role text not null,
    action text not null,
    target text not null,
    detail text,
    outcome text
);
CREATE UNIQUE INDEX audit_pkey ON onward.audit USING btree (id);

table duplicates (
    no bigint not null generated always as identity,
    run uuid not null,
    start uuid not null,
    at bigint not null,
    caller text not null,
    same_input boolean not null
);
CREATE INDEX duplicates_other ON onward.duplicates USING btree (no) WHERE (NOT same_input);
CREATE UNIQUE INDEX duplicates_pkey ON onward.duplicates USING btree (no);
CREATE UNIQUE INDEX duplicates_run_start_key ON onward.duplicates USING btree (run, start);

table gathered (
    start uuid not null,
    run uuid not null,
    created_at bigint not null,
    at bigint not null
);
CREATE INDEX gathered_at ON onward.gathered USING btree (at);
CREATE UNIQUE INDEX gathered_pkey ON onward.gathered USING btree (start);

table grants (
    queue text collate "C" not null,
    at bigint not null,
    count bigint not null
);
CREATE UNIQUE INDEX grants_pkey ON onward.grants USING btree (queue, at);

table inputs (
    run uuid not null,
    input text not null,
    tags text
);
CREATE UNIQUE INDEX inputs_pkey ON onward.inputs USING btree (run);

table keys (
    workflow text collate "C" not null,
    key text collate "C" not null,
    run uuid not null,
    fingerprint bytea not null,
    expires_at bigint
);
CREATE UNIQUE INDEX keys_pkey ON onward.keys USING btree (workflow, key);

table log (
    run uuid not null,
    no bigint not null,
    at bigint not null,
    step text collate "C",
    try_number integer,
    text text not null
);
CREATE UNIQUE INDEX log_pkey ON onward.log USING btree (run, no);

table outputs (
    run uuid not null,
    output text,
    failure text
);
CREATE UNIQUE INDEX outputs_pkey ON onward.outputs USING btree (run);

table queues (
    name text collate "C" not null,
    concurrency integer,
    per_worker integer,
    rate_count integer,
    rate_period_ms bigint,
    per_lane integer,
    paused_at bigint,
    changed_at bigint,
    last_lane text collate "C"
) with (fillfactor=50);
CREATE UNIQUE INDEX queues_pkey ON onward.queues USING btree (name);

table records (
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
    voided_at bigint
);
CREATE UNIQUE INDEX records_pkey ON onward.records USING btree (run, step, slot);

table runs (
    id uuid not null,
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
    code_change text,
    signals bigint not null,
    parent uuid,
    parent_step text,
    detached boolean not null,
    cascades boolean,
    paused_by text,
    forked_from uuid,
    notes text,
    lane text collate "C",
    late_at bigint,
    signal_bytes bigint not null
) with (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=1, autovacuum_analyze_scale_factor=0.05);
CREATE INDEX runs_cascades ON onward.runs USING btree (id) WHERE (cascades IS NOT NULL);
CREATE INDEX runs_child ON onward.runs USING btree (parent, id) WHERE ((parent IS NOT NULL) AND (finished_at IS NULL) AND (NOT detached));
CREATE INDEX runs_children ON onward.runs USING btree (parent, id) WHERE (parent IS NOT NULL);
CREATE INDEX runs_duplicated ON onward.runs USING btree (duplicates, id) WHERE (duplicates > 0);
CREATE INDEX runs_finished ON onward.runs USING btree (state, finished_at, id) WHERE (finished_at IS NOT NULL);
CREATE INDEX runs_kept ON onward.runs USING btree (stuck_builds, ((crashes >= 3)), queue, workflow, priority DESC, due_at, id) WHERE ((state = 'queued'::text) AND (paused_at IS NULL) AND (stuck_builds IS NOT NULL) AND (cancel_at IS NULL));
CREATE INDEX runs_key ON onward.runs USING btree (key, id) WHERE (key IS NOT NULL);
CREATE INDEX runs_laneless ON onward.runs USING btree (queue, workflow, priority DESC, due_at, id) WHERE ((state = 'queued'::text) AND (lane IS NULL) AND (crashes < 3) AND (paused_at IS NULL) AND ((stuck_builds IS NULL) OR (cancel_at IS NOT NULL)));
CREATE INDEX runs_lanes ON onward.runs USING btree (queue, workflow, lane, ((started_at IS NULL)), priority DESC, due_at, id) WHERE ((state = 'queued'::text) AND (lane IS NOT NULL) AND (crashes < 3) AND (paused_at IS NULL) AND ((stuck_builds IS NULL) OR (cancel_at IS NOT NULL)));
CREATE INDEX runs_late ON onward.runs USING btree (deadline_at, id) WHERE ((deadline_at IS NOT NULL) AND (late_at IS DISTINCT FROM deadline_at) AND (cancel_at IS NULL) AND ((state = 'queued'::text) OR (state = 'waiting'::text)) AND ((stuck IS NULL) OR (stuck <> 'corrupt_record'::text)));
CREATE INDEX runs_marked ON onward.runs USING btree (worker, id) WHERE ((state = 'running'::text) AND (cancel_at IS NOT NULL));
CREATE INDEX runs_pausing ON onward.runs USING btree (worker, id) WHERE ((state = 'running'::text) AND (paused_at IS NOT NULL));
CREATE UNIQUE INDEX runs_pkey ON onward.runs USING btree (id);
CREATE INDEX runs_queued ON onward.runs USING btree (queue, workflow, priority DESC, due_at, id) WHERE ((state = 'queued'::text) AND (crashes < 3) AND (paused_at IS NULL) AND ((stuck_builds IS NULL) OR (cancel_at IS NOT NULL)));
CREATE INDEX runs_running ON onward.runs USING btree (worker, ticket) WHERE (state = 'running'::text);
CREATE INDEX runs_slots ON onward.runs USING btree (queue, lane, worker) WHERE ((state = 'running'::text) AND (queue > ''::text));
CREATE INDEX runs_stuck ON onward.runs USING btree (stuck_builds, queue, workflow, id) WHERE (stuck IS NOT NULL);
CREATE INDEX runs_suspect ON onward.runs USING btree (queue, workflow, priority DESC, due_at, id) WHERE ((state = 'queued'::text) AND (crashes >= 3) AND (paused_at IS NULL) AND ((stuck_builds IS NULL) OR (cancel_at IS NOT NULL)));
CREATE INDEX runs_waiting ON onward.runs USING btree (due_at, id) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));

table schedules (
    name text collate "C" not null,
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
    latest_key text,
    lane text collate "C"
);
CREATE INDEX schedules_due ON onward.schedules USING btree (next_at) WHERE ((paused_at IS NULL) AND (next_at IS NOT NULL));
CREATE UNIQUE INDEX schedules_pkey ON onward.schedules USING btree (name);

table schema (
    version integer not null
);
CREATE UNIQUE INDEX schema_pkey ON onward.schema USING btree (version);

table signals (
    run uuid not null,
    no bigint not null,
    name text collate "C" not null,
    step text collate "C" not null,
    key text collate "C" not null,
    fingerprint bytea not null,
    body text not null,
    at bigint not null
);
CREATE UNIQUE INDEX signals_key ON onward.signals USING btree (run, name, key);
CREATE UNIQUE INDEX signals_pkey ON onward.signals USING btree (run, no);

table step_key_duplicates (
    no bigint not null generated always as identity,
    token bigint not null,
    holder text collate "C" not null,
    at bigint not null,
    caller text not null,
    same_input boolean not null
);
CREATE UNIQUE INDEX step_key_duplicates_pkey ON onward.step_key_duplicates USING btree (no);
CREATE UNIQUE INDEX step_key_duplicates_token_holder_key ON onward.step_key_duplicates USING btree (token, holder);

table step_keys (
    key text collate "C" not null,
    token bigint not null generated always as identity,
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
CREATE UNIQUE INDEX step_keys_pkey ON onward.step_keys USING btree (key);
CREATE INDEX step_keys_until ON onward.step_keys USING btree (until) WHERE (until IS NOT NULL);

table tags (
    name text collate "C" not null,
    value text collate "C" not null,
    run uuid not null
);
CREATE UNIQUE INDEX tags_pkey ON onward.tags USING btree (name, value, run);

table workers (
    id uuid not null,
    build text not null,
    place text not null,
    queues text not null,
    workflows text not null,
    lease_ms bigint not null,
    lease_until bigint not null,
    lost_at bigint,
    concurrency bigint,
    closed_ticket bigint,
    server text collate "C"
) with (fillfactor=50);
CREATE INDEX workers_lost ON onward.workers USING btree (lost_at) WHERE (lost_at IS NOT NULL);
CREATE UNIQUE INDEX workers_pkey ON onward.workers USING btree (id);

view records_json (
    run uuid,
    seq bigint,
    step text collate "C",
    kind text collate "C",
    body jsonb,
    try_number integer,
    attempt integer,
    at timestamp with time zone,
    voided_at timestamp with time zone
);

view runs_json (
    id uuid,
    workflow text collate "C",
    state text collate "C",
    queue text collate "C",
    priority integer,
    key text collate "C",
    input jsonb,
    output jsonb,
    failure jsonb,
    waits_for jsonb,
    created_at timestamp with time zone,
    due_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone
);

function assert_live(worker uuid) returns void;

function canonical(value jsonb) returns text;

function canonical_number(n numeric) returns text;

function check_name(what text, name text, bytes_max integer) returns void;

function claim(p_now bigint, p_worker uuid, p_ticket bigint, p_build text, p_queues text[], p_workflows text[], p_limit integer, p_suspect boolean, p_wake_limit integer, p_bytes_max bigint, p_pages_max bigint, p_due_from bigint, f_queue text[], f_workflow text[], f_high integer[], f_low integer[], f_due_at bigint[], f_id uuid[]) returns TABLE(again boolean, next_due bigint, more boolean, suspect boolean, changed uuid[], woken integer, marks uuid[], mark_attempts integer[], mark_ends boolean[], look_us bigint, seen_queue text[], seen_workflow text[], seen_priority integer[], seen_due_at bigint[], seen_id uuid[], seen_taken boolean[]);

function claim_any(p_queues text[], p_workflows text[], p_kept text[], p_suspect boolean, f_queue text[], f_workflow text[], f_high integer[], f_low integer[], f_due_at bigint[], f_id uuid[]) returns boolean;

function claim_behind(p_run uuid) returns boolean;

function claim_bounded(p_runs uuid[], p_bytes_max bigint) returns uuid[];

function claim_choose(p_now bigint, p_worker uuid, p_queue text, p_workflows text[], p_kept text[], p_suspect boolean, p_limit integer, p_take boolean) returns TABLE(runs uuid[], more boolean, look_at bigint, cut_at text);

function claim_first(p_queues text[], p_workflows text[], p_kept text[], p_suspect boolean, p_limit integer, f_queue text[], f_workflow text[], f_high integer[], f_low integer[], f_due_at bigint[], f_id uuid[]) returns TABLE(queue text, workflow text, priority integer, due_at bigint, id uuid);

function claim_fitting(p_queue text, p_per_lane integer, p_runs uuid[], p_chosen uuid[], p_limit integer) returns uuid[];

function claim_in_places(p_chosen uuid[], p_others uuid[]) returns uuid[];

function claim_in_turn(p_queue text, p_workflows text[], p_lanes text[], p_free integer[], p_limit integer) returns uuid[];

function claim_kept(p_build text) returns text[];

function claim_laneless(p_queue text, p_workflows text[], p_limit integer) returns TABLE(id uuid, priority integer, due_at bigint);

function claim_lanes(p_queue text, p_workflows text[], p_per_lane integer, p_last text, p_limit integer, p_looks integer) returns TABLE(lanes text[], free integer[], cut_at text);

function claim_left(p_now bigint, p_worker uuid, p_queues text[], p_workflows text[], p_kept text[], p_dry text[], p_busy text[]) returns TABLE(more boolean, suspect boolean, look_at bigint);

function claim_limited(p_now bigint, p_worker uuid, p_queues text[], p_workflows text[], p_kept text[], p_suspect boolean, p_limit integer, p_others uuid[]) returns TABLE(chosen uuid[], taken uuid[], dry text[], busy text[]);

function claim_note(p_now bigint, p_queues text[], p_chosen uuid[], p_taken uuid[]) returns void;

function claim_pages() returns bigint;

function claim_ranges(p_queue text, p_workflow text, f_queue text[], f_workflow text[], f_high integer[], f_low integer[], f_due_at bigint[], f_id uuid[]) returns TABLE(high integer, low integer, due_at bigint, id uuid);

function claim_rare(p_queue text, p_workflows text[], p_kept text[], p_suspect boolean, p_looks integer) returns uuid[];

function claim_room(p_now bigint, p_worker uuid, p_queue text) returns TABLE(room bigint, look_at bigint, per_lane integer, last_lane text);

function claim_seen(p_queue text[], p_workflow text[], p_priority integer[], p_due_at bigint[], p_id uuid[], p_taken integer, OUT queue text[], OUT workflow text[], OUT priority integer[], OUT due_at bigint[], OUT id uuid[], OUT taken boolean[]) returns record;

function claim_walk(p_queue text, p_workflows text[], p_after text, p_upto text, p_looks integer) returns TABLE(lane text, place integer);

function durable() returns void;

function fence(workers uuid[]) returns void;

function fence_key(worker uuid) returns bigint;

function freed(p_runs uuid[]) returns SETOF uuid;

function held(value jsonb) returns jsonb;

function leave(p_now bigint, p_worker uuid, p_limit integer) returns TABLE(released uuid[], more boolean);

function moved(workers uuid[]) returns uuid[];

function names(builds text, build text) returns boolean;

function new_id(p_now bigint) returns uuid;

function now_ms(given bigint) returns bigint;

function prune(p_now bigint, p_older_than_ms bigint, p_states text[], p_limit integer, p_run uuid) returns TABLE(runs bigint, more boolean);

function prune_alone(p_run uuid, p_before uuid) returns boolean;

function prune_bounded(p_runs uuid[]) returns uuid[];

function record(p_fence bigint, p_worker uuid, p_follows_seq bigint, p_follows_step text, p_run uuid, p_attempt integer, p_seq bigint, p_step text, p_slot bigint, p_kind text, p_body text, p_try integer, p_began_at bigint, p_at bigint, p_next_at bigint, p_foreign boolean) returns boolean;

function server() returns text;

function settle(p_now bigint, p_workers uuid[], w_run uuid[], w_worker uuid[], w_attempt integer[], w_follows_seq bigint[], w_follows_step text[], w_end text[], w_output text[], w_failure text[], w_step text[], w_wake_at bigint[], w_waits_for text[], w_wakes_seen bigint[], r_run uuid[], r_attempt integer[], r_seq bigint[], r_step text[], r_slot bigint[], r_kind text[], r_body text[], r_try integer[], r_began_at bigint[], r_at bigint[], r_next_at bigint[], r_foreign boolean[]) returns TABLE(run uuid, answer text);

function shown(payload text) returns jsonb;

function signal(run uuid, name text, value jsonb DEFAULT 'null'::jsonb, key text DEFAULT NULL::text) returns bigint;

function signal_alone(p_now bigint, p_run uuid, p_name text, p_step text, p_key text, p_fingerprint bytea, p_body text) returns TABLE(how text, no bigint, at bigint);

function signal_inside(p_now bigint, p_run uuid, p_name text, p_step text, p_key text, p_fingerprint bytea, p_body text) returns TABLE(how text, no bigint, at bigint);

function signal_one(p_now bigint, p_run uuid, p_name text, p_step text, p_key text, p_fingerprint bytea, p_body text, p_bounded boolean) returns TABLE(how text, no bigint, at bigint);

function start(workflow text, input jsonb DEFAULT 'null'::jsonb, key text DEFAULT NULL::text, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, timeout interval DEFAULT NULL::interval, key_ttl interval DEFAULT NULL::interval, tags jsonb DEFAULT '{}'::jsonb, lane text DEFAULT NULL::text) returns uuid;

function start_met(p_now bigint, s_id uuid[], s_workflow text[], s_key text[], s_fingerprint bytea[], s_caller text[], p_kept integer) returns TABLE(id uuid, run uuid, at bigint);

function start_one(p_now bigint, p_id uuid, p_workflow text, p_input text, p_fingerprint bytea, p_key text, p_ttl bigint, p_reject boolean, p_queue text, p_priority integer, p_after bigint, p_at bigint, p_timeout bigint, p_tags text, p_caller text, p_lane text) returns TABLE(run uuid, how text, at bigint);

function start_runs(p_now bigint, p_workers uuid[], s_id uuid[], s_workflow text[], s_queue text[], s_priority integer[], s_input text[], s_tags text[], s_after bigint[], s_at bigint[], s_timeout bigint[], s_key text[], s_fingerprint bytea[], s_ttl bigint[], s_worker uuid[], s_build text[], t_run uuid[], t_name text[], t_value text[], c_id uuid[], c_parent uuid[], c_worker uuid[], c_attempt integer[], c_step text[], c_detached boolean[], s_lane text[]) returns TABLE(id uuid, claimed boolean, at bigint);

function sweep(p_now bigint, p_worker uuid, p_take_expired boolean, p_limit integer, p_lost_kept bigint, p_children_limit integer) returns TABLE(lost uuid[], taken uuid[], woken integer, changed uuid[], more boolean, next_at bigint, children uuid[], late uuid[]);

function sweep_children(p_limit integer) returns uuid[];

function sweep_late(p_now bigint, p_limit integer) returns uuid[];

function sweep_lost(p_now bigint, p_worker uuid) returns uuid[];

function sweep_mended(p_now bigint, p_worker uuid, p_limit integer) returns uuid[];

function sweep_taken(p_now bigint, p_worker uuid, p_limit integer) returns uuid[];

function tags_of(tags text) returns TABLE(name text, value text);

function tell_parents(p_now bigint, p_runs uuid[]) returns TABLE(parent uuid, woken boolean);

function tell_work() returns void;

function transact(p_transaction text, p_run uuid, p_worker uuid, p_attempt integer, p_follows_seq bigint[], p_follows_step text[], p_seq bigint, p_step text, p_slot bigint, p_kind text, p_body text, p_try integer, p_began_at bigint, p_at bigint, p_foreign boolean) returns void;

function wake(p_from bigint, p_now bigint, p_limit integer) returns uuid[];

function with_build(builds text, build text) returns text;
