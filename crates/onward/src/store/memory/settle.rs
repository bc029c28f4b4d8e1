//! Writes under a lease: records, and the end of an attempt.
//!
//! Owns: the check against the lease, and what each end does to a run. Never refuses a repeat of a
//! write that was done.

use super::*;
use crate::{Code, Json, RecordKind};

pub(super) fn record(state: &mut State, lease: Lease, append: Append) -> Result<(), Error> {
    let new = not_yet_there(state, lease, append.records);
    if new.is_empty() {
        return Ok(());
    }
    fenced(state, lease)?;
    check_follows(state, lease.run, &append.follows)?;
    add(state, lease, new)
}

/// Refuses a write that follows what is not there.
fn check_follows(state: &State, run: RunId, follows: &[RecordRef]) -> Result<(), Error> {
    let records = &state.row(run)?.records;
    let is_there =
        |of: &RecordRef| records.iter().any(|it| it.seq == of.seq && *it.step == *of.step);
    if follows.iter().all(is_there) { Ok(()) } else { Err(Error::HistoryLost) }
}

/// The records of which no identical row is there.
fn not_yet_there(state: &State, lease: Lease, mut records: Vec<Record>) -> Vec<Record> {
    records.iter_mut().for_each(|record| record.attempt = lease.attempt);
    if let Some(row) = state.runs.get(&lease.run) {
        records.retain(|new| !row.records.iter().any(|old| is_same(old, new)));
    }
    records
}

/// Whether `old` is what a first write of `new` left, voided since or not.
fn is_same(old: &Record, new: &Record) -> bool {
    old.seq == new.seq
        && old.attempt == new.attempt
        && old.step == new.step
        && old.try_number == new.try_number
        && old.entry == new.entry
        && old.undoable == new.undoable
}

pub(super) fn fenced(state: &State, lease: Lease) -> Result<(), Error> {
    let held = state.runs.get(&lease.run).is_some_and(|row| row.is_held_by(lease));
    if held && !state.is_lost(lease.worker) { Ok(()) } else { Err(Error::LeaseLost) }
}

fn add(state: &mut State, lease: Lease, new: Vec<Record>) -> Result<(), Error> {
    let row = state.row_mut(lease.run)?;
    let clash =
        |old: &Record, new: &Record| old.step == new.step && rules::slot(old) == rules::slot(new);
    for (place, record) in new.iter().enumerate() {
        if row.records.iter().chain(&new[..place]).any(|old| clash(old, record)) {
            return Err(Error::Conflict(Conflict::Record { run: lease.run }));
        }
    }
    row.records.extend(new);
    row.records.sort_by_key(|record| record.seq);
    Ok(())
}

pub(super) fn settle(
    state: &mut State,
    lease: Lease,
    settle: Settle,
    now: Timestamp,
) -> Result<Settled, Error> {
    let trace = state.runs.get(&lease.run).and_then(|row| row.attempts.get(&lease.attempt));
    if let Some(settled) = trace.and_then(|trace| trace.settled) {
        return Ok(settled);
    }
    fenced(state, lease)?;
    check_follows(state, lease.run, &settle.follows)?;
    check_continuation(state, lease.run, &settle.end)?;
    let new = not_yet_there(state, lease, settle.records);
    add(state, lease, new)?;
    if !settle.unasked.is_empty() {
        let run = &mut state.row_mut(lease.run)?.run;
        run.code_change = Some(rules::code_change(run.build.as_deref(), &settle.unasked, now));
    }
    let settled = end(state, lease.run, settle.end, now)?;
    Ok(settled)
}

/// Refuses to go on if the run is asked to end, or as a run that is there.
fn check_continuation(state: &State, run: RunId, end: &End) -> Result<(), Error> {
    let End::Continued { run: next, .. } = end else { return Ok(()) };
    rules::check_continues(run, state.row(run)?.run.cancel_at.is_some())?;
    if state.runs.contains_key(next) {
        return Err(Error::Conflict(Conflict::Record { run }));
    }
    Ok(())
}

fn end(state: &mut State, run: RunId, end: End, now: Timestamp) -> Result<Settled, Error> {
    let row = state.row_mut(run)?;
    let settled = match &end {
        End::Parked { wakes_seen, .. } | End::Stuck { wakes_seen, .. }
            if *wakes_seen != row.run.wakes =>
        {
            Settled::Queued
        }
        _ => Settled::AsSaid,
    };
    row.trace(Some(settled));
    row.run.crashes = 0;
    row.run.retried_at = None;
    match end {
        End::Stuck { code, detail, .. } => row.stick(code, detail, settled, now),
        End::Parked { wake_at, waits_for, .. } => row.park(wake_at, waits_for, settled, now),
        End::Released => row.queue(now),
        End::Completed(output) => {
            row.run.output = Some(output);
            state.end(run, RunState::Completed, now);
        }
        End::Failed { failure, step } => {
            row.run.failure = Some(failure);
            row.failed_step = step;
            state.end(run, RunState::Failed, now);
        }
        End::Cancelled => state.end(run, RunState::Cancelled, now),
        End::Continued { run: next, input, undelivered } => {
            row.void_signals(&undelivered, now);
            continue_as(state, run, next, input, now)?;
        }
    }
    Ok(settled)
}

/// Ends the run and starts the one that goes on, which takes over its key and its successor.
fn continue_as(
    state: &mut State,
    run: RunId,
    next: RunId,
    input: Json,
    now: Timestamp,
) -> Result<(), Error> {
    let row = state.row_mut(run)?;
    row.run.continued_as = Some(next);
    let fresh = rules::continuation(row.run.clone(), next, input, now);
    let successor = row.run.successor.take();
    let handed_on = row.handed_on();
    state.end(run, RunState::Completed, now);
    let mut row = Row::of(fresh);
    row.take_over(handed_on);
    state.runs.insert(next, row);
    if let Some(successor) = successor {
        state.move_behind(successor, next);
    }
    state.keys.values_mut().filter(|key| key.run == run).for_each(|key| key.run = next);
    Ok(())
}

impl Row {
    /// Takes the records of these signals out of the history, visibly.
    fn void_signals(&mut self, steps: &[String], now: Timestamp) {
        let arrived = |record: &&mut Record| record.entry.kind() == RecordKind::Arrived;
        let records = self.records.iter_mut().filter(arrived);
        let voided = records.filter(|record| steps.contains(&record.step));
        voided.for_each(|record| record.voided_at = Some(now));
    }

    fn park(
        &mut self,
        wake_at: Option<Timestamp>,
        waits_for: Waits,
        settled: Settled,
        now: Timestamp,
    ) {
        self.release();
        self.run.state = RunState::Waiting;
        self.run.due_at = wake_at;
        self.run.waits_for = Some(waits_for);
        if settled == Settled::Queued {
            self.run.state = RunState::Queued;
            self.run.due_at = Some(now);
            self.run.waits_for = None;
        }
    }

    fn stick(&mut self, code: Code, detail: String, settled: Settled, now: Timestamp) {
        rules::add_stuck_build(&mut self.run.stuck_builds, self.run.build.as_deref());
        let code = code.as_str().to_owned();
        self.park(None, Waits::Stuck { code, detail }, settled, now);
    }
}
