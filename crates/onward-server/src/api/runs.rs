//! `/runs`: lists of runs, and one run.
//!
//! Owns: the rows that lists of runs have, and the sentence in them. Never computes why a run does not
//! run; the library does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use axum::extract::State;
use onward::{Around, Query, QueueUse, Run, RunPage, Why, why};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{errors, filter};
use crate::answer::{self, Answer, Fields, Page};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{At, Params, run_id};

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let (filter, limit) = (filter::of_params(&params)?, params.limit()?);
    let page = app.onward.list(Query { filter, before: params.cursor_of()?, limit }).await?;
    rows(&app, page).await
}

async fn rows(app: &App, page: RunPage) -> Answer {
    let last = page.runs.last().map(|run| run.id.to_string());
    let mut items = Vec::with_capacity(page.runs.len());
    let mut uses = Uses::new();
    for run in &page.runs {
        items.push(row(run, &sentence(&reason_by(app, run, &mut uses).await?))?);
    }
    answer::ok(&Page { items, next: last.filter(|_| page.more) })
}

/// What is counted in each queue and lane of the runs of one page: most of them share theirs.
type Uses = HashMap<(String, Option<String>), Option<QueueUse>>;

/// Why a run is not running, by workers that were there a second ago at the latest.
pub(crate) async fn reason(app: &App, run: &Run) -> Result<Why, Problem> {
    reason_by(app, run, &mut Uses::new()).await
}

async fn reason_by(app: &App, run: &Run, uses: &mut Uses) -> Result<Why, Problem> {
    let workers = app.workers().await?;
    let used = match uses.entry((run.queue.clone(), run.lane.clone())) {
        _ if run.state.is_final() => None,
        Entry::Occupied(known) => known.get().clone(),
        Entry::Vacant(free) => free.insert(app.queue_use(run).await?).clone(),
    };
    let holder = app.onward.key_holder(run).await;
    let around = Around { workers: &workers, used: used.as_ref(), holder: holder.as_ref() };
    Ok(why(run, around, app.now()))
}

/// A run as a row: without its payloads, and with the sentence that says why it does not run.
pub(crate) fn row(run: &Run, why: &Option<String>) -> Result<Fields, Problem> {
    let mut fields = answer::fields(run)?;
    for payload in ["input", "output"] {
        fields.remove(payload);
    }
    if let Some(failure) = &run.failure {
        #[derive(Serialize)]
        struct Short<'a> {
            code: &'a str,
            message: &'a str,
            retryable: bool,
            /// Its group in the list of errors.
            fingerprint: String,
        }
        let (code, message) = (failure.code.as_str(), failure.message.as_str());
        let fingerprint = errors::fingerprint(&run.workflow, failure);
        let short = Short { code, message, retryable: failure.retryable, fingerprint };
        fields.insert("failure".to_owned(), answer::raw(&short)?);
    }
    fields.insert("why".to_owned(), answer::raw(why)?);
    Ok(fields)
}

/// A sentence about a run that neither runs nor has ended.
pub(crate) fn sentence(why: &Why) -> Option<String> {
    match why {
        Why::Ended { .. } | Why::Running { .. } => None,
        other => Some(other.to_string()),
    }
}

#[derive(Serialize)]
struct Shown {
    run: Box<RawValue>,
    why: Option<WhyShown>,
    duplicates: onward::Duplicates,
}

#[derive(Serialize)]
struct WhyShown {
    code: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<onward::Timestamp>,
    /// Whether no worker is up that serves it.
    unserved: bool,
}

pub(crate) async fn show(State(app): State<App>, At(id): At<String>) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    let (run, duplicates) = (handle.own_status().await?, handle.duplicates().await?);
    let why = shown_why(&reason(&app, &run).await?);
    answer::ok(&Shown { run: shown(&app, run)?, why, duplicates })
}

/// A run with its payloads as they may be shown.
pub(crate) fn shown(app: &App, run: Run) -> Result<Box<RawValue>, Problem> {
    answer::raw(&app.options.shown_run(run))
}

fn shown_why(why: &Why) -> Option<WhyShown> {
    let until = match why {
        Why::Ended { .. } => return None,
        Why::Until { at, .. } => Some(*at),
        _ => None,
    };
    Some(WhyShown { code: why.code(), text: why.to_string(), until, unserved: why.is_unserved() })
}
