//! `/waiting`: runs that wait, by what they wait for.
//!
//! Owns: the walk through the waiting runs, which no index tells apart. Never looks at more of them for
//! one request than its limit; the cursor goes on where it stopped.

use axum::extract::State;
use onward::{Query, Run, RunState};
use serde::Serialize;

use super::runs;
use crate::answer::{self, Answer, Fields};
use crate::app::App;
use crate::limits::{SCAN_PAGE, WAITING_SCAN};
use crate::problem::Problem;
use crate::request::Params;

/// What a run can wait for, as it is written.
const KINDS: [&str; 11] = [
    "start", "debounce", "timer", "retry", "key", "backoff", "behind", "signal", "child",
    "readable", "stuck",
];

#[derive(Serialize)]
struct Waiting {
    items: Vec<Fields>,
    /// Where to go on. There may be none among the rest.
    next: Option<String>,
    /// How many waiting runs were looked at.
    looked: usize,
}

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let (kind, limit) = (kind(&params)?, params.limit()?);
    let mut query = Query { before: params.cursor_of()?, ..Query::default() };
    query.filter.states = vec![RunState::Waiting];
    // Where each of them fits, no more are read than are shown.
    query.limit = if kind.is_some() { SCAN_PAGE } else { limit };
    let (mut found, mut looked) = (Vec::new(), 0);
    let next = loop {
        let page = app.onward.list(query.clone()).await?;
        let last = page.runs.last().map(|run| run.id);
        for run in page.runs {
            looked += 1;
            query.before = Some(run.id);
            if fits(&run, kind)? {
                found.push(run);
            }
            if found.len() >= limit {
                break;
            }
        }
        let rest = page.more || last.is_some_and(|last| query.before != Some(last));
        if !rest || found.len() >= limit || looked >= WAITING_SCAN {
            break query.before.filter(|_| rest);
        }
    };
    let mut items = Vec::with_capacity(found.len());
    for run in &found {
        items.push(runs::row(run, &runs::sentence(&runs::reason(&app, run).await?))?);
    }
    answer::ok(&Waiting { items, next: next.map(|id| id.to_string()), looked })
}

fn kind(params: &Params) -> Result<Option<&str>, Problem> {
    match params.text("for") {
        Some(kind) if !KINDS.contains(&kind) => {
            Err(Problem::invalid("for", format!("it is none of {}", KINDS.join(", "))))
        }
        kind => Ok(kind),
    }
}

fn fits(run: &Run, kind: Option<&str>) -> Result<bool, Problem> {
    let (Some(kind), Some(waits)) = (kind, &run.waits_for) else { return Ok(kind.is_none()) };
    let fields = answer::fields(waits)?;
    Ok(fields.get("for").is_some_and(|own| own.get().trim_matches('"') == kind))
}
