//! The decisions that must be taken inside a store's transaction.
//!
//! Owns: what happens to a run that is cancelled, retried, taken from a lost worker, or met by a
//! start with its key; as pure functions, so that every store decides alike. Never reads a store.

use std::time::Duration;

use crate::limits::{CRASH_BACKOFF_MAX, CRASHES_MAX, LOST_WORKERS_KEPT, SUSPECT_CRASHES};
use crate::{Code, OnConflict, Run, RunState, Timestamp, Waits};

use super::{Conflict, Error, StartAt};

/// What a cancel does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelling {
    /// Nothing: it is cancelled, or asked to be.
    Already,
    /// Mark it; its holder settles it.
    Mark,
    /// It ends at once.
    End,
    /// Mark it and queue it; a worker settles it.
    Queue,
}

/// What a cancel does to this run. `recorded`: whether it has any record.
pub(crate) fn cancelling(run: &Run, recorded: bool) -> Result<Cancelling, Error> {
    match run.state {
        RunState::Cancelled => Ok(Cancelling::Already),
        RunState::Completed | RunState::Failed => {
            Err(Error::Conflict(Conflict::Finished { run: run.id }))
        }
        RunState::Running if run.cancel_at.is_some() => Ok(Cancelling::Already),
        RunState::Running => Ok(Cancelling::Mark),
        RunState::Queued | RunState::Waiting if !recorded => Ok(Cancelling::End),
        RunState::Queued if run.cancel_at.is_some() => Ok(Cancelling::Already),
        RunState::Queued | RunState::Waiting => Ok(Cancelling::Queue),
    }
}

/// Whether a retry has something to do: `false` means that an earlier one did it.
pub(crate) fn retrying(run: &Run) -> Result<bool, Error> {
    let stuck = matches!(run.waits_for, Some(Waits::Stuck { .. }));
    match run.state {
        RunState::Failed => Ok(true),
        RunState::Waiting if stuck => Ok(true),
        RunState::Queued | RunState::Running if run.retried_at.is_some() => Ok(false),
        _ => Err(Error::Conflict(Conflict::NotFailed { run: run.id })),
    }
}

/// What a start does when its key is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyMet {
    /// Give the caller the run that has it.
    Existing,
    /// Retry that run and give it to the caller.
    Retry,
    /// End that run and give its key to the new one.
    Replace,
    /// Refuse: another input.
    OtherInput,
    /// Refuse: in use.
    Taken,
}

/// What a start with this policy does when `run` has its key.
///
/// A run that is queued or running because of an earlier retry meets `RetryFailed` as it meets
/// another `retry`: it is told that it goes on, so that a repeat after a lost answer is not
/// counted as a duplicate.
pub(crate) fn key_met(on_conflict: OnConflict, same_input: bool, run: &Run) -> KeyMet {
    match on_conflict {
        OnConflict::Replace => KeyMet::Replace,
        OnConflict::Reject => KeyMet::Taken,
        OnConflict::Existing | OnConflict::RetryFailed if !same_input => KeyMet::OtherInput,
        OnConflict::RetryFailed if run.state == RunState::Failed => KeyMet::Retry,
        OnConflict::RetryFailed if matches!(retrying(run), Ok(false)) => KeyMet::Retry,
        OnConflict::Existing | OnConflict::RetryFailed => KeyMet::Existing,
    }
}

/// What becomes of a run whose worker was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AfterLoss {
    /// Its new state: queued or waiting.
    pub(crate) state: RunState,
    /// When it may be claimed again.
    pub(crate) due_at: Option<Timestamp>,
    /// What it waits for.
    pub(crate) waits_for: Option<Waits>,
    /// Its new number of crashes in a row.
    pub(crate) crashes: u32,
}

/// What becomes of `run`, whose worker was lost. `progressed`: whether its attempt left a record.
///
/// One or two losses say nothing: a deploy or a power cut hits every run. From the third on the
/// run is a suspect, claimed alone and after a growing pause. A run that somebody asked to
/// cancel is never held back, since settling it executes no user code.
pub(crate) fn after_loss(run: &Run, progressed: bool, now: Timestamp) -> AfterLoss {
    let crashes = if progressed { 0 } else { run.crashes + 1 };
    let queued = AfterLoss { state: RunState::Queued, due_at: Some(now), waits_for: None, crashes };
    if run.cancel_at.is_some() || crashes < SUSPECT_CRASHES {
        return queued;
    }
    let waiting = AfterLoss { state: RunState::Waiting, ..queued };
    if crashes >= CRASHES_MAX {
        let detail = format!("{crashes} workers in a row died in this run without a record");
        let code = Code::CrashLoop.as_str().to_owned();
        return AfterLoss {
            due_at: None,
            waits_for: Some(Waits::Stuck { code, detail }),
            ..waiting
        };
    }
    let pause = Duration::from_secs(1 << (crashes - SUSPECT_CRASHES)).min(CRASH_BACKOFF_MAX);
    AfterLoss { due_at: Some(now + pause), waits_for: Some(Waits::Backoff { crashes }), ..waiting }
}

/// Whether a run is claimed alone, because it may be what kills its workers.
pub(crate) fn is_suspect(crashes: u32) -> bool {
    crashes >= SUSPECT_CRASHES
}

/// Workers that were lost before this time and hold no run are forgotten.
pub(crate) fn forget_lost_before(now: Timestamp) -> Timestamp {
    let kept_ms = i64::try_from(LOST_WORKERS_KEPT.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(kept_ms))
}

/// When a run that is started `now` may first be claimed.
pub(crate) fn start_time(start_at: StartAt, now: Timestamp) -> Timestamp {
    match start_at {
        StartAt::Now => now,
        StartAt::After(ms) => Timestamp::from_millis(now.as_millis().saturating_add(ms.max(0))),
        StartAt::At(time) => time.max(now),
    }
}

/// The state of a run that may start at `start`: queued, or waiting for that time.
pub(crate) fn state_at_start(start: Timestamp, now: Timestamp) -> (RunState, Option<Waits>) {
    if start <= now { (RunState::Queued, None) } else { (RunState::Waiting, Some(Waits::Start)) }
}
