//! Every endpoint, in one table.
//!
//! Owns: what there is, which role it takes, what it is given and what it answers. The router, the
//! guard, the audit and the OpenAPI document are made from it, so none of them knows an endpoint
//! that another does not.

use crate::options::Role;

/// Where the API begins.
pub(crate) const API: &str = "/api/v1";

/// One method of one path.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// A stable name: of the audit's actions, the metrics and generated clients.
    pub(crate) name: &'static str,
    /// In lower case.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// The least role; `None`: anybody, before any login.
    pub(crate) role: Option<Role>,
    /// The parameters of its query.
    pub(crate) params: &'static [&'static str],
    /// The schema of its body.
    pub(crate) takes: Option<&'static str>,
    /// The statuses of its success, and the schema of what comes with them.
    pub(crate) gives: &'static [(u16, &'static str)],
    /// The media type of what it gives.
    pub(crate) kind: &'static str,
}

impl Endpoint {
    /// Whether it changes anything.
    pub(crate) fn is_change(&self) -> bool {
        self.method != "get"
    }

    const fn new(
        method: &'static str,
        path: &'static str,
        name: &'static str,
        summary: &'static str,
    ) -> Self {
        let role = Some(Role::Read);
        let kind = "application/json";
        Self { name, method, path, summary, role, params: &[], takes: None, gives: &[], kind }
    }

    const fn params(mut self, params: &'static [&'static str]) -> Self {
        self.params = params;
        self
    }

    const fn gives(mut self, gives: &'static [(u16, &'static str)]) -> Self {
        self.gives = gives;
        self
    }

    const fn takes(mut self, takes: &'static str) -> Self {
        self.takes = Some(takes);
        self
    }

    const fn kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    const fn role(mut self, role: Option<Role>) -> Self {
        self.role = role;
        self
    }
}

const fn get(path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
    Endpoint::new("get", path, name, summary)
}

const fn post(path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
    Endpoint::new("post", path, name, summary).role(Some(Role::Operate))
}

const fn put(path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
    Endpoint::new("put", path, name, summary).role(Some(Role::Operate))
}

const fn delete(path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
    Endpoint::new("delete", path, name, summary).role(Some(Role::Admin))
}

const PAGE: &[&str] = &["cursor", "limit"];
const ADMIN: Option<Role> = Some(Role::Admin);

/// The parameters that choose runs.
const RUNS: &[&str] = &[
    "state",
    "workflow",
    "queue",
    "key",
    "tag",
    "parent",
    "created_from",
    "created_before",
    "cursor",
    "limit",
];
const EXPORT: &[&str] =
    &["state", "workflow", "queue", "key", "tag", "parent", "created_from", "created_before"];

/// The endpoint of this method and path.
pub(crate) fn find(method: &str, path: &str) -> Option<&'static Endpoint> {
    ENDPOINTS.iter().find(|endpoint| endpoint.method == method && endpoint.path == path)
}

/// The methods that this path has.
pub(crate) fn methods_of(path: &str) -> Vec<String> {
    let parts: Vec<_> = path.split('/').collect();
    let fits = |pattern: &str| {
        let pattern: Vec<_> = pattern.split('/').collect();
        let mut pairs = pattern.iter().zip(&parts);
        pattern.len() == parts.len() && pairs.all(|(own, part)| own.starts_with('{') || own == part)
    };
    let all = ENDPOINTS.iter().filter(|endpoint| fits(endpoint.path));
    all.map(|endpoint| endpoint.method.to_uppercase()).collect()
}

/// All there is.
pub(crate) static ENDPOINTS: &[Endpoint] = &[
    get("/livez", "livez", "Whether the process answers")
        .role(None)
        .kind("text/plain")
        .gives(&[(200, "Text")]),
    get("/readyz", "readyz", "Whether the store answers and the server is not stopping")
        .role(None)
        .kind("text/plain")
        .gives(&[(200, "Text")]),
    get("/openapi.json", "openapi", "This document").role(None).gives(&[(200, "Object")]),
    get("/api/v1/codes", "list_codes", "Every code that a refusal or a failure can have")
        .role(None)
        .gives(&[(200, "Codes")]),
    get("/api/v1/codes/{code}", "show_code", "What a code means: the type of a problem leads here")
        .role(None)
        .gives(&[(200, "Code")]),
    get("/metrics", "metrics", "Counts for Prometheus").kind("text/plain").gives(&[(200, "Text")]),
    post("/api/v1/session", "begin_session", "Logs the dashboard in: sets its cookie")
        .role(None)
        .takes("NewSession")
        .gives(&[(200, "Session")]),
    delete("/api/v1/session", "end_session", "Logs the dashboard out")
        .role(None)
        .gives(&[(204, "")]),
    get("/api/v1/meta", "meta", "What this server is, and what the caller may do")
        .gives(&[(200, "Meta")]),
    get("/api/v1/stats", "stats", "Counts of runs, and the workers").gives(&[(200, "Stats")]),
    get("/api/v1/workers", "list_workers", "The workers that are up").gives(&[(200, "Workers")]),
    get("/api/v1/workflows", "list_workflows", "Workflows, counted over the newest runs")
        .gives(&[(200, "Workflows")]),
    get(
        "/api/v1/workflows/{workflow}/steps",
        "workflow_steps",
        "How long the steps of a workflow take",
    )
    .params(&["window_ms"])
    .gives(&[(200, "StepTimes")]),
    post(
        "/api/v1/workflows/{workflow}/runs",
        "start_run",
        "Starts a run; with an Idempotency-Key, once",
    )
    .params(&["wait_ms"])
    .takes("NewRun")
    .gives(&[(201, "Started"), (200, "Started"), (202, "Started")]),
    get("/api/v1/runs", "list_runs", "Runs, newest first").params(RUNS).gives(&[(200, "RunRows")]),
    get("/api/v1/runs.csv", "export_runs_csv", "Runs as comma-separated values")
        .params(EXPORT)
        .kind("text/csv")
        .gives(&[(200, "Text")]),
    get("/api/v1/runs.jsonl", "export_runs_jsonl", "Runs as lines of JSON")
        .params(EXPORT)
        .kind("application/jsonl")
        .gives(&[(200, "Text")]),
    get("/api/v1/runs/{id}", "show_run", "One run, and why it is not running")
        .gives(&[(200, "ShownRun")]),
    delete("/api/v1/runs/{id}", "delete_run", "Deletes a run that has ended").gives(&[(204, "")]),
    get("/api/v1/runs/{id}/history", "run_history", "The records of a run, in order")
        .params(PAGE)
        .gives(&[(200, "Records")]),
    get(
        "/api/v1/runs/{id}/timeline",
        "run_timeline",
        "Every record of a run by columns, without payloads",
    )
    .gives(&[(200, "Timeline")]),
    get("/api/v1/runs/{id}/records/{seq}", "run_record", "One record, with its payload")
        .gives(&[(200, "Record")]),
    get("/api/v1/runs/{id}/log", "run_log", "What a run wrote into its log")
        .params(PAGE)
        .gives(&[(200, "Lines")]),
    get(
        "/api/v1/runs/{id}/signals",
        "list_signals",
        "The signals of a run that nothing in it has taken yet, in order",
    )
    .params(PAGE)
    .gives(&[(200, "Signals")]),
    post("/api/v1/runs/{id}/signals", "send_signal", "Sends a run a signal; with a key, once")
        .takes("NewSignal")
        .gives(&[(202, "Signalled")]),
    post("/api/v1/runs/{id}/cancel", "cancel_run", "Asks a run to end").gives(&[(200, "RunOnly")]),
    post("/api/v1/runs/{id}/pause", "pause_run", "Pauses a run").gives(&[(200, "RunOnly")]),
    post("/api/v1/runs/{id}/resume", "resume_run", "Lets a paused run go on")
        .gives(&[(200, "RunOnly")]),
    post(
        "/api/v1/runs/{id}/retry",
        "retry_run",
        "Lets a failed run go on from the step that failed",
    )
    .gives(&[(200, "RunOnly")]),
    post(
        "/api/v1/runs/{id}/fork",
        "fork_run",
        "Starts a run that has the history of another up to a step",
    )
    .takes("NewFork")
    .gives(&[(200, "RunOnly"), (201, "RunOnly")]),
    post("/api/v1/callbacks", "answer_callback", "Answers a callback of a run")
        .takes("CallbackAnswer")
        .gives(&[(200, "RunOnly")]),
    get("/api/v1/operations", "list_operations", "Changes of many runs, newest first")
        .params(PAGE)
        .gives(&[(200, "Operations")]),
    post("/api/v1/operations", "begin_operation", "Changes many runs, durably")
        .takes("NewOperation")
        .gives(&[(202, "OperationBegun"), (200, "Matched")]),
    get("/api/v1/operations/{id}", "show_operation", "A change of many runs, and how far it is")
        .gives(&[(200, "Operation")]),
    post("/api/v1/operations/{id}/abort", "abort_operation", "Stops a change of many runs")
        .gives(&[(200, "Operation")]),
    post("/api/v1/prune", "prune_runs", "Deletes runs that ended long ago")
        .role(ADMIN)
        .takes("NewPrune")
        .gives(&[(200, "Pruned")]),
    get("/api/v1/keys", "list_keys", "Keys of runs, by what they begin with")
        .params(&["workflow", "prefix", "cursor", "limit"])
        .gives(&[(200, "RunKeys")]),
    get("/api/v1/keys/top", "top_keys", "The keys with the most suppressed starts")
        .params(&["limit"])
        .gives(&[(200, "RunKeys")]),
    get("/api/v1/keys/conflicts", "key_conflicts", "Starts whose key was used with another input")
        .params(PAGE)
        .gives(&[(200, "KeyConflicts")]),
    get(
        "/api/v1/keys/{workflow}/{key}",
        "show_key",
        "The run that has a key, and what came second",
    )
    .params(&["past"])
    .gives(&[(200, "ShownKey")]),
    get("/api/v1/step-keys", "list_step_keys", "Step keys that are not free")
        .params(&["prefix", "cursor", "limit"])
        .gives(&[(200, "StepKeys")]),
    get("/api/v1/step-keys/{key}", "show_step_key", "A step key, and what came second")
        .gives(&[(200, "ShownStepKey")]),
    delete("/api/v1/step-keys/{key}", "release_step_key", "Forgets a step key")
        .gives(&[(200, "Released")]),
    get("/api/v1/queues", "list_queues", "Queues, what waits in them and what limits them")
        .params(&["cursor"])
        .gives(&[(200, "Queues")]),
    put("/api/v1/queues/{queue}", "limit_queue", "Sets the limits of a queue")
        .role(ADMIN)
        .takes("QueueLimits")
        .gives(&[(200, "Queue")]),
    delete("/api/v1/queues/{queue}", "clear_queue", "Takes all limits from a queue, and its pause")
        .gives(&[(200, "ClearedQueue")]),
    post("/api/v1/queues/{queue}/pause", "pause_queue", "Pauses a queue").gives(&[(200, "Queue")]),
    post("/api/v1/queues/{queue}/resume", "resume_queue", "Lets a paused queue go on")
        .gives(&[(200, "Queue")]),
    get("/api/v1/schedules", "list_schedules", "Schedules, with their next times")
        .params(&["cursor"])
        .gives(&[(200, "Schedules")]),
    get("/api/v1/schedules/{schedule}", "show_schedule", "A schedule, with its next times")
        .params(&["times"])
        .gives(&[(200, "Schedule")]),
    put("/api/v1/schedules/{schedule}", "put_schedule", "Adds a schedule, or changes it")
        .takes("NewSchedule")
        .gives(&[(200, "Schedule")]),
    delete("/api/v1/schedules/{schedule}", "remove_schedule", "Removes a schedule")
        .gives(&[(200, "Removed")]),
    post("/api/v1/schedules/{schedule}/pause", "pause_schedule", "Pauses a schedule")
        .gives(&[(200, "Schedule")]),
    post("/api/v1/schedules/{schedule}/resume", "resume_schedule", "Lets a paused schedule go on")
        .gives(&[(200, "Schedule")]),
    post(
        "/api/v1/schedules/{schedule}/trigger",
        "trigger_schedule",
        "Starts a run of a schedule now; with an Idempotency-Key, once",
    )
    .gives(&[(200, "Occurred")]),
    post(
        "/api/v1/schedules/{schedule}/backfill",
        "backfill_schedule",
        "Starts runs for times that have passed",
    )
    .takes("NewBackfill")
    .gives(&[(200, "Backfilled")]),
    get(
        "/api/v1/errors",
        "list_errors",
        "Failures of the newest failed runs, by what they have in common",
    )
    .params(&["window_ms"])
    .gives(&[(200, "Errors")]),
    get("/api/v1/waiting", "list_waiting", "Runs that wait, and for what")
        .params(&["for", "cursor", "limit"])
        .gives(&[(200, "WaitingRows")]),
    get("/api/v1/audit", "list_audit", "Who changed what, newest first")
        .role(ADMIN)
        .params(PAGE)
        .gives(&[(200, "AuditRows")]),
    get("/api/v1/stream", "stream", "Says what changed, as it changes")
        .params(&["run"])
        .kind("text/event-stream")
        .gives(&[(200, "Text")]),
];
