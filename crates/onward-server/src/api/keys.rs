//! `/keys`: the keys of runs, and what came second.
//!
//! Owns: the rows about keys. Never takes one; starts do.

use axum::extract::State;
use onward::store::{KeyLook, Looks, RunKey, Which};
use onward::{Filter, Query, Run, RunId, Timestamp};
use serde::Serialize;

use super::runs;
use super::step_keys::Released;
use crate::answer::{self, Answer, Fields, Page};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{At, Params, run_id};

fn looks(app: &App) -> Result<&dyn Looks, Problem> {
    app.store().looks().ok_or_else(|| Problem::unsupported("the store does not list keys"))
}

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let text = |name| params.text(name).map(str::to_owned);
    let look = KeyLook {
        workflow: text("workflow"),
        prefix: text("prefix").unwrap_or_default(),
        after: params.cursor().map(after).transpose()?,
        limit: params.limit()?,
    };
    let page = looks(&app)?.run_keys(look).await?;
    let last = page.keys.last().map(cursor);
    answer::ok(&Page { items: page.keys, next: last.filter(|_| page.more) })
}

/// The run comes first, because it has no colon.
fn cursor(key: &RunKey) -> String {
    format!("{}:{}", key.run, key.key)
}

fn after(cursor: &str) -> Result<(String, RunId), Problem> {
    let parts =
        cursor.split_once(':').and_then(|(run, key)| Some((key.to_owned(), run.parse().ok()?)));
    parts.ok_or_else(|| Problem::invalid("cursor", "it is not one of this list"))
}

pub(crate) async fn top(State(app): State<App>, params: Params) -> Answer {
    let keys = looks(&app)?.top_keys(params.limit()?).await?;
    answer::ok(&Page { items: keys, next: None })
}

pub(crate) async fn conflicts(State(app): State<App>, params: Params) -> Answer {
    let page = looks(&app)?.key_conflicts(params.cursor_of()?, params.limit()?).await?;
    let last = page.conflicts.last().map(|conflict| conflict.no.to_string());
    answer::ok(&Page { items: page.conflicts, next: last.filter(|_| page.more) })
}

#[derive(Serialize)]
struct Shown {
    run: Fields,
    duplicates: onward::Duplicates,
    /// How many of those that are kept had another input.
    conflicts: u64,
    /// When the key is free again, if it has a time of its own.
    expires_at: Option<Timestamp>,
    /// Whether the run has the key, rather than had it.
    held: bool,
}

pub(crate) async fn show(
    State(app): State<App>,
    At((workflow, key)): At<(String, String)>,
    params: Params,
) -> Answer {
    let text = format!("no run of workflow {workflow:?} has the key {key:?}");
    let which = Which::Key { workflow: workflow.clone(), key: key.clone() };
    let holder = app.store().get(which).await?;
    let held = holder.is_some();
    let run = match holder {
        None if params.is_set("past")? => past(&app, workflow, key).await?,
        holder => holder,
    };
    let run = run.ok_or_else(|| Problem::new(onward::Code::KeyNotFound, text))?;
    let duplicates = app.onward.run(run.id).duplicates().await?;
    let other = duplicates.latest.iter().filter(|duplicate| !duplicate.same_input);
    let (conflicts, expires_at) = (other.count() as u64, expiry(&app, &run).await?);
    let why = runs::reason(&app, &run).await?;
    let run = runs::row(&run, &runs::sentence(&why))?;
    answer::ok(&Shown { run, duplicates, conflicts, expires_at, held })
}

/// The newest run that had a key, which is free or another's by now.
async fn past(app: &App, workflow: String, key: String) -> Result<Option<Run>, Problem> {
    let filter = Filter { workflow: Some(workflow), key: Some(key), ..Filter::default() };
    let page = app.onward.list(Query { filter, before: None, limit: 1 }).await?;
    Ok(page.runs.into_iter().next())
}

/// When the key of a run is free again, where its store tells.
async fn expiry(app: &App, run: &Run) -> Result<Option<Timestamp>, Problem> {
    let (Some(looks), Some(key)) = (app.store().looks(), &run.key) else { return Ok(None) };
    // The page begins after what would come just before it, so the row of this run is its first.
    let before = RunId::from_u128(run.id.as_u128().saturating_sub(1));
    let look = KeyLook {
        workflow: Some(run.workflow.clone()),
        prefix: key.clone(),
        after: Some((key.clone(), before)),
        limit: 1,
    };
    let found = looks.run_keys(look).await?.keys.into_iter().find(|row| row.run == run.id);
    Ok(found.and_then(|row| row.expires_at))
}

/// By the run, and not by the key: asked again after a lost answer, it must not free the key of the
/// run that has it by then.
pub(crate) async fn release(State(app): State<App>, At(id): At<String>) -> Answer {
    let released = app.onward.run(run_id(&id)?).release_key().await?;
    answer::ok(&Released { released })
}
