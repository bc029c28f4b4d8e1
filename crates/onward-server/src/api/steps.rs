//! `/workflows/{workflow}/steps`: how long steps take, over the newest ended runs.
//!
//! Owns: the percentiles. Never looks at more runs and records than its sample.

use std::collections::BTreeMap;

use axum::extract::State;
use onward::{Entry, Filter, Record, RunId, RunState, Timestamp};
use serde::Serialize;

use super::workflows::each_run;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::limits::{STEPS_RECORDS_MAX, STEPS_SAMPLE};
use crate::problem::Problem;
use crate::request::{At, Params};

#[derive(Serialize)]
struct StepTimes {
    /// How many ended runs were looked at.
    sample: usize,
    items: Vec<StepTime>,
}

#[derive(Serialize)]
struct StepTime {
    step: String,
    /// Tries, those that failed among them.
    count: usize,
    p50_ms: i64,
    p95_ms: i64,
    p99_ms: i64,
    failures: usize,
}

#[derive(Default)]
struct Seen {
    times: Vec<i64>,
    failures: usize,
}

pub(crate) async fn list(
    State(app): State<App>,
    At(workflow): At<String>,
    params: Params,
) -> Answer {
    let since = params.millis("window_ms")?.map(|ms| ago(app.now(), ms));
    let states = vec![RunState::Completed, RunState::Failed];
    let filter =
        Filter { workflow: Some(workflow), states, created_from: since, ..Filter::default() };
    let mut runs = Vec::new();
    each_run(&app, filter, STEPS_SAMPLE, |run| runs.push(run.id)).await?;
    let (mut steps, mut records, mut sample) = (BTreeMap::<String, Seen>::new(), 0, 0);
    for run in runs {
        if records >= STEPS_RECORDS_MAX {
            break;
        }
        records += see(&app, run, &mut steps).await?;
        sample += 1;
    }
    let items = steps.into_iter().map(|(step, seen)| seen.times(step)).collect();
    answer::ok(&StepTimes { sample, items })
}

/// The moment that long before now.
pub(super) fn ago(now: Timestamp, ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(ms))
}

async fn see(app: &App, run: RunId, steps: &mut BTreeMap<String, Seen>) -> Result<usize, Problem> {
    let (mut after, mut records) = (None, 0);
    loop {
        let page = app.store().history(run, after, onward::limits::PAGE_ROWS_MAX).await?;
        records += page.records.len();
        after = page.records.last().map(|record| record.seq);
        for record in page.records.iter().filter(|record| is_work(record)) {
            steps.entry(name(record).to_owned()).or_default().see(record);
        }
        if !page.more || records >= STEPS_RECORDS_MAX {
            return Ok(records);
        }
    }
}

/// Whether a record tells of a body that was executed: sleeps, signals and the engine's own notes are
/// no work whose time says anything, but what undoes a step is.
fn is_work(record: &Record) -> bool {
    let of_engine = record.step.starts_with('$');
    let undoes = record.step.starts_with("$undo/") || record.step.starts_with("$on_cancel/");
    let executed =
        matches!(record.entry, Entry::Done(_) | Entry::Failed(_) | Entry::TryFailed { .. });
    executed && (!of_engine || undoes)
}

/// The step's name, without what tells it from others of that name: a number, an id of its own or a
/// key. A `#` inside of a name is escaped.
fn name(record: &Record) -> &str {
    record.step.split_once('#').map_or(&record.step, |(name, _)| name)
}

impl Seen {
    /// Adds one try, however it ended.
    fn see(&mut self, record: &Record) {
        self.times.push(took(record));
        self.failures += usize::from(!matches!(record.entry, Entry::Done(_)));
    }

    fn times(mut self, step: String) -> StepTime {
        self.times.sort_unstable();
        let at = |percent: usize| {
            let place = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
            self.times.get(place).copied().unwrap_or(0)
        };
        let (p50_ms, p95_ms, p99_ms) = (at(50), at(95), at(99));
        StepTime { step, count: self.times.len(), p50_ms, p95_ms, p99_ms, failures: self.failures }
    }
}

fn took(record: &Record) -> i64 {
    record.at.as_millis().saturating_sub(record.began_at.as_millis()).max(0)
}
