//! `/runs/{id}/history`, `/timeline` and `/records/{seq}`: what a run recorded.
//!
//! Owns: the forms in which records are shown. Never shows a payload past the options.

use std::collections::HashMap;

use axum::extract::State;
use onward::limits::{HISTORY_RECORDS_MAX, PAGE_ROWS_MAX};
use onward::{Entry, Record, RecordKind, Run, Timestamp};
use serde::Serialize;

use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::limits::HISTORY_PAGE_BYTES;
use crate::problem::Problem;
use crate::request::{At, Params, run_id};

pub(crate) async fn list(State(app): State<App>, At(id): At<String>, params: Params) -> Answer {
    let run = app.onward.run(run_id(&id)?).status().await?;
    let (after, limit) = (params.cursor_of::<u64>()?, params.limit()?);
    let page = app.store().history(run.id, after, limit).await?;
    let (mut bytes, mut more) = (0, page.more);
    let mut items: Vec<Record> = Vec::with_capacity(page.records.len());
    for record in page.records {
        // A page has at least one record, however large.
        if bytes > HISTORY_PAGE_BYTES {
            more = true;
            break;
        }
        bytes += payload_bytes(&record);
        items.push(app.options.shown_record(record, &run));
    }
    let last = items.last().map(|record| record.seq.to_string());
    answer::ok(&Page { items, next: last.filter(|_| more) })
}

fn payload_bytes(record: &Record) -> usize {
    match &record.entry {
        Entry::Done(json) | Entry::Arrived(json) => json.as_str().len(),
        _ => 0,
    }
}

pub(crate) async fn record(State(app): State<App>, At((id, seq)): At<(String, String)>) -> Answer {
    let run = app.onward.run(run_id(&id)?).status().await?;
    let number = seq.parse::<u64>();
    let seq = number.map_err(|_| Problem::invalid("seq", format!("{seq:?} is no number")))?;
    let after = seq.checked_sub(1);
    let page = app.store().history(run.id, after, 1).await?;
    match page.records.into_iter().next().filter(|record| record.seq == seq) {
        Some(record) => answer::ok(&app.options.shown_record(record, &run)),
        None => {
            let text = format!("run {} has no record {seq}", run.id);
            Err(Problem::new(onward::Code::NoSuchPath, text).of_run(run.id))
        }
    }
}

/// Every record by columns: a fifth of the bytes of rows, and quickly read.
#[derive(Serialize)]
struct Timeline {
    steps: Vec<String>,
    rows: Columns,
    queue: Vec<Wait>,
    /// Whether the history goes on beyond what is shown.
    cut: bool,
    now: Timestamp,
}

#[derive(Default, Serialize)]
struct Columns {
    step: Vec<usize>,
    kind: Vec<RecordKind>,
    r#try: Vec<u32>,
    began_at: Vec<Timestamp>,
    at: Vec<Timestamp>,
    attempt: Vec<u32>,
    seq: Vec<u64>,
    next_at: Vec<Option<Timestamp>>,
    voided: Vec<bool>,
}

/// A time that the run spent before an attempt: queued, and before its first one also the delay that
/// it was started with, which the store does not keep.
#[derive(Serialize)]
struct Wait {
    from: Timestamp,
    to: Timestamp,
}

pub(crate) async fn timeline(State(app): State<App>, At(id): At<String>) -> Answer {
    let run = app.onward.run(run_id(&id)?).status().await?;
    let now = app.now();
    let queue = waits(&run, now);
    let mut timeline =
        Timeline { steps: Vec::new(), rows: Columns::default(), queue, cut: false, now };
    let (mut after, mut numbers) = (None, HashMap::new());
    loop {
        let page = app.store().history(run.id, after, PAGE_ROWS_MAX).await?;
        after = page.records.last().map(|record| record.seq);
        for record in page.records {
            timeline.add(record, &mut numbers);
        }
        if !page.more {
            return answer::ok(&timeline);
        }
        if timeline.rows.seq.len() >= HISTORY_RECORDS_MAX {
            timeline.cut = true;
            return answer::ok(&timeline);
        }
    }
}

impl Timeline {
    fn add(&mut self, record: Record, numbers: &mut HashMap<String, usize>) {
        let number = *numbers.entry(record.step.clone()).or_insert_with(|| {
            self.steps.push(record.step.clone());
            self.steps.len() - 1
        });
        let rows = &mut self.rows;
        rows.step.push(number);
        rows.kind.push(record.entry.kind());
        rows.r#try.push(record.try_number);
        rows.began_at.push(record.began_at);
        rows.at.push(record.at);
        rows.attempt.push(record.attempt);
        rows.seq.push(record.seq);
        rows.voided.push(record.voided_at.is_some());
        rows.next_at.push(match record.entry {
            Entry::TryFailed { next_at, .. } => Some(next_at),
            _ => None,
        });
    }
}

/// Before its first attempt, and now: the store keeps no more of it.
fn waits(run: &Run, now: Timestamp) -> Vec<Wait> {
    let mut waits = Vec::new();
    if let Some(to) = run.started_at {
        waits.push(Wait { from: run.created_at, to });
    }
    if run.state == onward::RunState::Queued {
        let from = run.due_at.unwrap_or(run.created_at);
        waits.push(Wait { from, to: now.max(from) });
    }
    waits
}
