//! `/stats`: counts of runs, the workers, and the last hour by the minute.
//!
//! Owns: the answer for the overview. Never counts more often than once a second.

use std::collections::BTreeMap;

use axum::extract::State;
use onward::store::Minute;
use onward::{RunState, Timestamp, WorkerInfo};
use serde::Serialize;

use crate::answer::{self, Answer};
use crate::app::App;
use crate::operation::of_users;

/// The series goes back an hour.
const SERIES_MINUTES: i64 = 60;

const MINUTE_MS: i64 = 60_000;

#[derive(Serialize)]
struct Stats<'a> {
    runs: &'a BTreeMap<RunState, u64>,
    queued: &'a BTreeMap<String, u64>,
    workers: Vec<&'a WorkerInfo>,
    /// `None` where the store cannot tell.
    series: Option<Vec<Minute>>,
}

/// The minute of this number, in which nothing may have happened.
fn of_number(found: &[Minute], number: i64) -> Minute {
    let at = number * MINUTE_MS;
    let there = found.iter().find(|minute| minute.at == at).copied();
    there.unwrap_or(Minute { at, ..Minute::default() })
}

pub(crate) async fn show(State(app): State<App>) -> Answer {
    let stats = app.stats().await?;
    let last = app.now().as_millis() / MINUTE_MS;
    let first = last - SERIES_MINUTES + 1;
    let found = app.minutes(Timestamp::from_millis(first * MINUTE_MS)).await?;
    let series = (*found)
        .as_ref()
        .map(|found| (first..=last).map(|number| of_number(found, number)).collect());
    let workers = of_users(&stats.workers).collect();
    answer::ok(&Stats { runs: &stats.runs, queued: &stats.queued, workers, series })
}
