//! `/stats`: counts of runs, the workers, and the last hour by the minute.

use std::collections::BTreeMap;

use axum::extract::State;
use onward::store::Minute;
use onward::{RunState, WorkerInfo};
use serde::Serialize;

use super::steps::ago;
use crate::answer::{self, Answer};
use crate::app::App;

/// How far the series goes back: an hour.
const SERIES_MS: u64 = 60 * 60 * 1_000;

#[derive(Serialize)]
struct Stats<'a> {
    runs: &'a BTreeMap<RunState, u64>,
    queued: &'a BTreeMap<String, u64>,
    workers: &'a [WorkerInfo],
    /// `None` where the store cannot tell.
    series: Option<Vec<Minute>>,
}

pub(crate) async fn show(State(app): State<App>) -> Answer {
    let stats = app.stats().await?;
    let series = match app.store().looks() {
        Some(looks) => Some(looks.minutes(ago(app.now(), SERIES_MS)).await?),
        None => None,
    };
    let (runs, queued, workers) = (&stats.runs, &stats.queued, stats.workers.as_slice());
    answer::ok(&Stats { runs, queued, workers, series })
}
