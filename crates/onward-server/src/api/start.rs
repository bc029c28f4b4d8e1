//! `/workflows/{workflow}/runs`: starting a run, once for its `Idempotency-Key`.
//!
//! Owns: what a start says and what comes of its key. Never decides whether two inputs are the same; the
//! library does. What else a repeat names is held against the run that has the key.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use onward::store::StartedHow;
use onward::{Code, Json, OnConflict, Run, RunHandle, RunId, Start, Timestamp, Workflow};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::runs;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::endpoint::API;
use crate::guard::{Detail, Peer};
use crate::limits::WAIT_MAX;
use crate::operation::check_workflow;
use crate::options::Caller;
use crate::problem::Problem;
use crate::request::{At, Body, Mount, Params, idempotency_key, null, payload};
use crate::trace;

/// The header of an answer that was given before.
pub(crate) const REPLAYED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));

/// When a caller asks again for the result of a run that is at work.
const IN_FLIGHT_MS: u64 = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRun {
    #[serde(default = "null", deserialize_with = "payload")]
    input: Json,
    queue: Option<String>,
    priority: Option<i32>,
    delay_ms: Option<u64>,
    at: Option<i64>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    on_conflict: OnConflict,
    key_ttl_ms: Option<u64>,
    lane: Option<String>,
    debounce_ms: Option<u64>,
    debounce_max_ms: Option<u64>,
    throttle_ms: Option<u64>,
}

impl NewRun {
    /// Whether it is gathered with others of its key.
    fn is_gathered(&self) -> bool {
        self.debounce_ms.is_some() || self.throttle_ms.is_some()
    }

    fn named(&self) -> Named {
        Named { queue: self.queue.clone(), lane: self.lane.clone(), priority: self.priority }
    }
}

/// What a start names besides its input that a run keeps for good. Tags change, and delays and time
/// limits are over at some time, so that a repeat cannot be held against them.
struct Named {
    queue: Option<String>,
    lane: Option<String>,
    priority: Option<i32>,
}

impl Named {
    /// What of it is not so of the run that has the key.
    fn differs(&self, run: &Run) -> Option<&'static str> {
        if self.queue.as_ref().is_some_and(|queue| *queue != run.queue) {
            return Some("queue");
        }
        if self.lane.is_some() && self.lane != run.lane {
            return Some("lane");
        }
        self.priority.is_some_and(|priority| priority != run.priority).then_some("priority")
    }
}

#[derive(Serialize)]
struct Started {
    run: Box<RawValue>,
    replayed: bool,
}

pub(crate) async fn start(
    State(app): State<App>,
    At(workflow): At<String>,
    head: Head,
    Body(mut new): Body<NewRun>,
) -> Answer {
    check_workflow(&workflow)?;
    let Head { caller, mount, key, wait, traceparent } = head;
    if key.is_none() && app.options.requires_key(&workflow) {
        app.counts.keyed("missing");
        let text = format!("a start of {workflow} needs one here, so that a repeat starts nothing");
        return Err(Problem::invalid("Idempotency-Key", text));
    }
    let (gathered, named) = (new.is_gathered(), new.named());
    if let Some(key) = &key
        && new.on_conflict == OnConflict::Replace
        && is_repeat(&app, &workflow, key, &new).await?
    {
        new.on_conflict = OnConflict::Existing;
    }
    let mut start = start_of(&app, workflow, new, key.as_deref())?.caller(caller);
    if let Some(traceparent) = traceparent {
        start = start.traceparent(&traceparent);
    }
    let started = start.started().await;
    let (handle, how) = match started {
        Ok(started) => started,
        Err(error) => {
            app.counts.keyed(refused(key.as_deref(), error.code()));
            return Err(error.into());
        }
    };
    let mut run = handle.status().await?;
    let replayed = how == StartedHow::Existing;
    if replayed
        && !gathered
        && let Some(field) = named.differs(&run)
    {
        app.counts.keyed(refused(key.as_deref(), Code::KeyConflict));
        let text = format!("run {} has this key, and another {field}", run.id);
        return Err(Problem::new(Code::KeyConflict, text).of_run(run.id));
    }
    // Whoever is gathered with others waits for the run that they share.
    let in_flight = replayed && wait.is_some() && !gathered && !run.state.is_final();
    app.counts.keyed(match how {
        _ if key.is_none() => "missing",
        _ if in_flight => "in_flight",
        StartedHow::Existing => "replayed",
        _ => "first",
    });
    if in_flight {
        let text = format!("run {} has this key and has not ended", run.id);
        let problem = Problem::new(Code::RunInFlight, text);
        return Err(problem.of_run(run.id).retry_after_ms(IN_FLIGHT_MS));
    }
    let mut status = match how {
        StartedHow::Existing | StartedHow::Retried => StatusCode::OK,
        _ => StatusCode::CREATED,
    };
    if let Some(wait) = wait {
        run = ended(&handle, run, wait).await?;
        status = if run.state.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    }
    let place = Place::of(&mount, run.id);
    let place = if replayed { place.replayed() } else { place };
    let started = Started { run: runs::shown(&app, run)?, replayed };
    Ok(place.on(answer::with(status, &started)?))
}

/// Whether a start that would replace the run of its key is the one that started it, said once more: its
/// answer may have been lost, and the run must not be.
async fn is_repeat(app: &App, workflow: &str, key: &str, new: &NewRun) -> Result<bool, Problem> {
    let workflow = Workflow::<Json, Json>::of_name(workflow.to_owned());
    let holder = match app.onward.by_key(workflow, key).await {
        Ok(holder) => holder.status().await?,
        Err(error) if error.code() == Code::KeyNotFound => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let same_input = holder.input.fingerprint() == new.input.fingerprint();
    Ok(same_input && !holder.state.is_final() && new.named().differs(&holder).is_none())
}

/// Where the run of an answer is, and whether the same request was answered before.
pub(super) struct Place {
    run: RunId,
    path: String,
    replayed: bool,
}

impl Place {
    pub(super) fn of(mount: &Mount, run: RunId) -> Self {
        Self { run, path: format!("{}{API}/runs/{run}", mount.0), replayed: false }
    }

    pub(super) fn replayed(self) -> Self {
        Self { replayed: true, ..self }
    }

    /// Says so in the head of an answer, and to the audit.
    pub(super) fn on(self, mut response: Response) -> Response {
        if let Ok(path) = HeaderValue::try_from(self.path) {
            response.headers_mut().insert(header::LOCATION, path);
        }
        if self.replayed {
            response.headers_mut().insert(REPLAYED.0, REPLAYED.1);
        }
        response.extensions_mut().insert(Detail(format!("run {}", self.run)));
        response
    }
}

/// What the head of a start says.
pub(crate) struct Head {
    /// Who starts it, for the audit of duplicates.
    caller: String,
    mount: Mount,
    key: Option<String>,
    wait: Option<Duration>,
    /// The trace that the caller is in.
    traceparent: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Head {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let mount = Mount::from_request_parts(parts, state).await?;
        let params = Params::from_request_parts(parts, state).await?;
        let who = parts.extensions.get::<Caller>().map_or("anyone", |caller| caller.who.as_str());
        let caller = match parts.extensions.get::<Peer>() {
            Some(from) => format!("http {who} {from}"),
            None => format!("http {who}"),
        };
        let key = idempotency_key(&parts.headers)?;
        let traceparent = trace::parent(&parts.headers).map(str::to_owned);
        Ok(Self { caller, mount, key, wait: wait(&params)?, traceparent })
    }
}

fn wait(params: &Params) -> Result<Option<Duration>, Problem> {
    let wait = params.millis("wait_ms")?.map(Duration::from_millis);
    match wait.filter(|wait| *wait > WAIT_MAX) {
        Some(_) => {
            let most = WAIT_MAX.as_millis();
            Err(Problem::invalid("wait_ms", format!("it is more than {most}")))
        }
        None => Ok(wait),
    }
}

/// The run at its end, or as it stands when the time is over.
async fn ended(handle: &RunHandle<Json>, run: Run, wait: Duration) -> Result<Run, Problem> {
    match tokio::time::timeout(wait, handle.ended()).await {
        Ok(ended) => Ok(ended?),
        Err(_) => Ok(handle.status().await.unwrap_or(run)),
    }
}

fn start_of(
    app: &App,
    workflow: String,
    new: NewRun,
    key: Option<&str>,
) -> Result<Start<Json>, Problem> {
    let workflow = Workflow::<Json, Json>::of_name(workflow);
    let mut start = app.onward.start(workflow, &new.input);
    start = start.priority(new.priority.unwrap_or(0)).on_conflict(new.on_conflict);
    if let Some(queue) = new.queue {
        start = start.queue(queue);
    }
    start = match (new.delay_ms, new.at) {
        (Some(_), Some(_)) => return Err(Problem::invalid("at", "it goes without delay_ms")),
        (Some(ms), None) => start.delay(Duration::from_millis(ms)),
        (None, Some(at)) => start.at(Timestamp::from_millis(at)),
        (None, None) => start,
    };
    if let Some(lane) = new.lane {
        start = start.lane(lane);
    }
    let length = |ms: Option<u64>| ms.map(Duration::from_millis);
    if let Some(quiet) = length(new.debounce_ms) {
        start = start.debounce(quiet);
    }
    if let Some(total) = length(new.debounce_max_ms) {
        start = start.debounce_max(total);
    }
    if let Some(period) = length(new.throttle_ms) {
        start = start.throttle(period);
    }
    if let Some(timeout) = length(new.timeout_ms) {
        start = start.timeout(timeout);
    }
    for (name, value) in new.tags {
        start = start.tag(name, value);
    }
    if let Some(ms) = new.key_ttl_ms {
        start = start.key_ttl(Duration::from_millis(ms));
    }
    if let Some(key) = key {
        start = start.key(key);
    }
    Ok(start)
}

/// What came of the key of a start that was refused, as the metrics name it.
fn refused(key: Option<&str>, code: Code) -> &'static str {
    match code {
        _ if key.is_none() => "missing",
        Code::KeyConflict => "mismatch",
        _ => "refused",
    }
}
