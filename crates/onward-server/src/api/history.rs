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
    let run = app.onward.run(run_id(&id)?).own_status().await?;
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
    let run = app.onward.run(run_id(&id)?).own_status().await?;
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
    delay: Option<Wait>,
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

/// A time that the run spent, or spends, before an attempt.
#[derive(Debug, PartialEq, Serialize)]
struct Wait {
    from: Timestamp,
    to: Timestamp,
}

pub(crate) async fn timeline(State(app): State<App>, At(id): At<String>) -> Answer {
    let run = app.onward.run(run_id(&id)?).own_status().await?;
    let now = app.now();
    let (delay, queue) = (delay(&run), queued(&run, now));
    let mut timeline =
        Timeline { steps: Vec::new(), rows: Columns::default(), delay, queue, cut: false, now };
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

/// From its start to the time that it was put off to, which may lie ahead; a run that ended before has
/// waited no longer.
fn delay(run: &Run) -> Option<Wait> {
    let over = [run.notes.start_at, run.started_at, run.finished_at].into_iter().flatten().min()?;
    run.notes.start_at.map(|_| Wait { from: run.created_at, to: over })
}

/// Before its first attempt, from the time that it was put off to, and now: the store keeps no more
/// of it.
fn queued(run: &Run, now: Timestamp) -> Vec<Wait> {
    let mut waits = Vec::new();
    if let Some(to) = run.started_at {
        let from = run.notes.start_at.unwrap_or(run.created_at).min(to);
        waits.push(Wait { from, to });
    }
    if run.state == onward::RunState::Queued {
        let from = run.due_at.unwrap_or(run.created_at);
        waits.push(Wait { from, to: now.max(from) });
    }
    waits
}

#[cfg(test)]
mod tests {
    use onward::{Json, RunId, RunState};

    use super::*;

    const AT: fn(i64) -> Timestamp = Timestamp::from_millis;

    fn run() -> Run {
        Run::fresh(RunId::from_u128(1), "bill".to_owned(), Json::stored("1"), AT(1_000))
    }

    fn put_off() -> Run {
        let mut run = run();
        (run.state, run.due_at) = (RunState::Waiting, Some(AT(5_000)));
        run.notes.start_at = run.due_at;
        run
    }

    fn wait(from: i64, to: i64) -> Wait {
        Wait { from: AT(from), to: AT(to) }
    }

    #[test]
    fn a_delay_is_no_time_in_the_queue() {
        let mut run = put_off();
        assert_eq!((delay(&run), queued(&run, AT(2_000))), (Some(wait(1_000, 5_000)), vec![]));
        run.state = RunState::Queued;
        let now = AT(5_500);
        let since = vec![wait(5_000, 5_500)];
        assert_eq!((delay(&run), queued(&run, now)), (Some(wait(1_000, 5_000)), since));
        (run.state, run.due_at, run.started_at) = (RunState::Running, None, Some(AT(5_700)));
        let before = vec![wait(5_000, 5_700)];
        assert_eq!((delay(&run), queued(&run, now)), (Some(wait(1_000, 5_000)), before));
    }

    #[test]
    fn a_delay_ends_with_its_run() {
        let mut run = put_off();
        (run.state, run.due_at, run.finished_at) = (RunState::Cancelled, None, Some(AT(1_200)));
        assert_eq!((delay(&run), queued(&run, AT(9_000))), (Some(wait(1_000, 1_200)), vec![]));
    }

    #[test]
    fn a_run_that_could_begin_at_once_has_no_delay() {
        let mut run = run();
        run.started_at = Some(AT(1_300));
        run.state = RunState::Running;
        assert_eq!((delay(&run), queued(&run, AT(9_000))), (None, vec![wait(1_000, 1_300)]));
    }
}
