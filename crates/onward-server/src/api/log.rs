//! `/runs/{id}/log`: the lines that a run wrote.
//!
//! Owns: the page of lines. Never writes one; runs do.

use axum::extract::State;
use onward::LogLine;

use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{At, Params, run_id};

pub(crate) async fn list(State(app): State<App>, At(id): At<String>, params: Params) -> Answer {
    let store = app.store();
    let notebook =
        store.notebook().ok_or_else(|| Problem::unsupported("the store keeps no log of runs"))?;
    let after = params.cursor_of()?.unwrap_or(0);
    let run = app.onward.run(run_id(&id)?).own_status().await?;
    let page = notebook.log(run.id, after, params.limit()?).await?;
    let next = page.lines.last().map(|line| line.no.to_string()).filter(|_| page.more);
    let items: Vec<LogLine> =
        page.lines.into_iter().map(|line| app.options.shown_line(line, &run)).collect();
    answer::ok(&Page { items, next })
}
