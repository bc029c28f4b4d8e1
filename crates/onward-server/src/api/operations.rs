//! `/operations`: changes of many runs, each a run of its own, so that it outlives the server.
//!
//! Owns: how such a change is asked for and shown. Never changes a run itself; the workflow does.

use std::num::NonZeroU32;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use onward::limits::PAGE_ROWS_MAX;
use onward::store::StartedHow;
use onward::{Code, Filter, Query, Run, RunId, RunState, Timestamp};
use serde::{Deserialize, Serialize};

use super::start::REPLAYED;
use super::workflows::each_run;
use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::chosen::Chosen;
use crate::guard::{Detail, Outcome};
use crate::limits::{OPERATION_IDS_MAX, OPERATION_MATCH_MAX, OPERATION_REASON_MAX};
use crate::operation::{Action, Expected, OPERATION, Operation, QUEUE, Totals, progress};
use crate::options::{Caller, Role};
use crate::problem::Problem;
use crate::request::{At, Body, Params, idempotency_key, run_id};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOperation {
    action: Action,
    #[serde(default)]
    filter: Option<Chosen>,
    #[serde(default)]
    ids: Vec<RunId>,
    reason: Option<String>,
    /// At most so many runs a second.
    pace: Option<NonZeroU32>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Begun {
    operation: Shown,
}

#[derive(Serialize)]
struct Shown {
    id: RunId,
    action: Action,
    filter: Chosen,
    ids: Vec<RunId>,
    state: &'static str,
    #[serde(flatten)]
    totals: Totals,
    /// How many runs fitted when it was begun.
    expected: Option<u64>,
    /// Whether more fitted than were counted.
    expected_more: bool,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    by: String,
    reason: Option<String>,
    pace: Option<NonZeroU32>,
}

#[derive(Serialize)]
struct Matched {
    matched: u64,
    /// Whether there are more than were counted.
    more: bool,
}

pub(crate) async fn begin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(new): Body<NewOperation>,
) -> Answer {
    let mut operation = checked(&new, &caller)?;
    let Expected { runs: matched, more } = counted(&app, &operation).await?;
    if new.dry_run {
        return counted_only(answer::ok(&Matched { matched, more })?);
    }
    operation.expected = Some(Expected { runs: matched, more });
    app.operate().await;
    // Runs that are started from here on are not meant.
    let now = app.now();
    let before = operation.filter.created_before.map_or(now, |before| before.min(now));
    operation.filter.created_before = Some(before).filter(|_| operation.ids.is_empty());
    let start = app.onward.start(OPERATION, &operation).queue(QUEUE);
    let (action, filter, reason) = (operation.action, &new.filter, &operation.reason);
    // Without a pace as before there was one: what was begun then is known again.
    let mut start = match operation.pace {
        None => start.fingerprint(&(action, filter, &operation.ids, reason)),
        Some(pace) => start.fingerprint(&(action, filter, &operation.ids, reason, pace)),
    };
    if let Some(key) = idempotency_key(&headers)? {
        start = start.key(key);
    }
    let (handle, how) = start.caller(format!("http {}", caller.who)).started().await?;
    let run = handle.status().await?;
    let detail = said(&operation, run.id);
    let operation = shown(&app, run).await?;
    let mut response = answer::with(StatusCode::ACCEPTED, &Begun { operation })?;
    if how == StartedHow::Existing {
        response.headers_mut().insert(REPLAYED.0, REPLAYED.1);
    }
    response.extensions_mut().insert(detail);
    Ok(response)
}

/// What the audit says of a change that is begun.
fn said(operation: &Operation, run: RunId) -> Detail {
    let why = operation.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    Detail(format!("{:?} as run {run}{why}", operation.action))
}

/// The answer of a dry run, which the audit does not take for a change.
pub(super) fn counted_only(mut response: Response) -> Answer {
    response.extensions_mut().insert(Outcome("counted"));
    response.extensions_mut().insert(Detail("a dry run: nothing was changed".to_owned()));
    Ok(response)
}

fn checked(new: &NewOperation, caller: &Caller) -> Result<Operation, Problem> {
    if new.action == Action::Delete && caller.role < Role::Admin {
        return Err(Problem::new(Code::Forbidden, "to delete takes the role admin"));
    }
    // Without either, a typing error would mean every run there is.
    if new.filter.is_some() != new.ids.is_empty() {
        return Err(Problem::invalid("filter", "say which runs: a filter, or ids"));
    }
    let written = serde_json::to_string(&new.filter).unwrap_or_default();
    if written.contains("\\u0000") {
        return Err(Problem::new(Code::NulCharacter, "the filter holds a NUL character"));
    }
    if new.ids.len() > OPERATION_IDS_MAX {
        let text = format!("more than {OPERATION_IDS_MAX} of them: say it with a filter");
        return Err(Problem::invalid("ids", text));
    }
    let reason = new.reason.as_deref().unwrap_or_default();
    if reason.chars().count() > OPERATION_REASON_MAX {
        let text = format!("it is longer than {OPERATION_REASON_MAX} characters");
        return Err(Problem::invalid("reason", text));
    }
    if reason.contains('\0') {
        return Err(Problem::new(Code::NulCharacter, "the reason holds a NUL character"));
    }
    Ok(Operation {
        action: new.action,
        filter: new.filter.clone().unwrap_or_default(),
        ids: new.ids.clone(),
        by: caller.who.clone(),
        reason: new.reason.clone(),
        pace: new.pace,
        expected: None,
    })
}

/// How many runs are meant, up to the limit of such a count.
async fn counted(app: &App, operation: &Operation) -> Result<Expected, Problem> {
    if !operation.ids.is_empty() {
        return Ok(Expected { runs: operation.ids.len() as u64, more: false });
    }
    let (mut runs, mut seen) = (0, 0);
    each_run(app, operation.filter.filter(), OPERATION_MATCH_MAX, |run| {
        seen += 1;
        runs += u64::from(operation.filter.has(run));
    })
    .await?;
    Ok(Expected { runs, more: seen >= OPERATION_MATCH_MAX })
}

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let workflow = Some(OPERATION.name().to_owned());
    let filter = Filter { workflow, ..Filter::default() };
    let query = Query { filter, before: params.cursor_of()?, limit: params.limit()? };
    let page = app.onward.list(query).await?;
    let last = page.runs.last().map(|run| run.id.to_string());
    let mut items = Vec::with_capacity(page.runs.len());
    // What somebody started under its name by another way is left out.
    for run in page.runs.into_iter().filter(is_operation) {
        items.push(shown(&app, run).await?);
    }
    answer::ok(&Page { items, next: last.filter(|_| page.more) })
}

pub(crate) async fn show(State(app): State<App>, At(id): At<String>) -> Answer {
    let run = find(&app, &id).await?;
    answer::ok(&shown(&app, run).await?)
}

pub(crate) async fn abort(State(app): State<App>, At(id): At<String>) -> Answer {
    let run = find(&app, &id).await?;
    let handle = app.onward.run(run.id);
    handle.cancel().await?;
    answer::ok(&shown(&app, handle.status().await?).await?)
}

fn is_operation(run: &Run) -> bool {
    run.workflow == OPERATION.name() && run.input.read::<Operation>().is_ok()
}

async fn find(app: &App, id: &str) -> Result<Run, Problem> {
    let run = app.onward.run(run_id(id)?).status().await?;
    if is_operation(&run) {
        return Ok(run);
    }
    let text = format!("run {} is not a change of many runs", run.id);
    Err(Problem::new(Code::RunNotFound, text).of_run(run.id))
}

async fn shown(app: &App, run: Run) -> Result<Shown, Problem> {
    let operation: Operation = run.input.read()?;
    let totals = match run.output.as_ref().and_then(|output| output.read().ok()) {
        Some(totals) => totals,
        None => so_far(app, run.id).await?,
    };
    let state = match run.state {
        RunState::Completed => "done",
        RunState::Cancelled => "aborted",
        RunState::Failed => "failed",
        RunState::Queued | RunState::Running | RunState::Waiting => "running",
    };
    Ok(Shown {
        id: run.id,
        action: operation.action,
        filter: operation.filter,
        ids: operation.ids,
        state,
        totals,
        expected: operation.expected.map(|expected| expected.runs),
        expected_more: operation.expected.is_some_and(|expected| expected.more),
        created_at: run.created_at,
        finished_at: run.finished_at,
        by: operation.by,
        reason: operation.reason,
        pace: operation.pace,
    })
}

async fn so_far(app: &App, run: RunId) -> Result<Totals, Problem> {
    let (mut after, mut totals) = (None, Totals::default());
    loop {
        let page = app.store().history(run, after, PAGE_ROWS_MAX).await?;
        after = page.records.last().map(|record| record.seq);
        totals = progress(&page.records).unwrap_or(totals);
        if !page.more {
            return Ok(totals);
        }
    }
}
