//! `/keys`: the keys of runs, and what came second.
//!
//! Owns: the rows about keys. Never takes or frees one.

use axum::extract::State;
use onward::RunId;
use onward::store::{KeyLook, Looks, RunKey, Which};
use serde::Serialize;

use super::runs;
use crate::answer::{self, Answer, Fields, Page};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{At, Params};

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
}

pub(crate) async fn show(
    State(app): State<App>,
    At((workflow, key)): At<(String, String)>,
) -> Answer {
    let text = format!("no run of workflow {workflow:?} has the key {key:?}");
    let run = app.store().get(Which::Key { workflow, key }).await?;
    let run = run.ok_or_else(|| Problem::new(onward::Code::KeyNotFound, text))?;
    let duplicates = app.onward.run(run.id).duplicates().await?;
    let why = runs::reason(&app, &run).await?;
    answer::ok(&Shown { run: runs::row(&run, &runs::sentence(&why))?, duplicates })
}
