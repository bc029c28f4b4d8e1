//! `/prune`: deletes runs that ended long ago.
//!
//! Owns: how such a deletion is asked for, and how long one request goes on with it. Never touches a run
//! that has not ended; the store sees to that.

use std::time::{Duration, Instant};

use axum::extract::State;
use onward::limits::PRUNE_REST_MAX;
use onward::{Prune, RunState};
use serde::{Deserialize, Serialize};

use super::operations::counted_only;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::guard::Detail;
use crate::limits::PRUNE_MAX;
use crate::problem::Problem;
use crate::request::Body;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPrune {
    older_than_ms: u64,
    #[serde(default)]
    state: Vec<RunState>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Pruned {
    runs: u64,
    /// Whether the time was over before the last of them. Sent again, it goes on.
    more: bool,
}

pub(crate) async fn prune(State(app): State<App>, Body(new): Body<NewPrune>) -> Answer {
    if let Some(state) = new.state.iter().find(|state| !state.is_final()) {
        let text = format!("a run that is {state} has not ended, and is never pruned");
        return Err(Problem::invalid("state", text));
    }
    let age = Duration::from_millis(new.older_than_ms);
    let states: Vec<_> = new.state.iter().map(|state| state.as_str()).collect();
    let which = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    let prune = Prune::older_than(age).states(new.state);
    if new.dry_run {
        let pruned = app.store().prune(prune.dry_run()).await?;
        return counted_only(answer::ok(&Pruned { runs: pruned.runs, more: false })?);
    }
    let (begun, mut runs) = (Instant::now(), 0);
    let more = loop {
        let began = Instant::now();
        let batch = app.store().prune(prune.clone()).await?;
        runs += batch.runs;
        if !batch.more || begun.elapsed() >= PRUNE_MAX {
            break batch.more;
        }
        tokio::time::sleep(began.elapsed().min(PRUNE_REST_MAX)).await;
    };
    let mut response = answer::ok(&Pruned { runs, more })?;
    let seconds = age.as_secs();
    let detail = format!("{runs} runs that ended at least {seconds} s ago{which}");
    response.extensions_mut().insert(Detail(detail));
    Ok(response)
}
