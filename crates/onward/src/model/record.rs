//! A record: one line of a run's history.
//!
//! Owns: [`Record`] and what it can say. Never touches a stored one: only a store marks it as
//! voided.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Failure, Json, Timestamp};

/// One stored fact of a run: a step's result, a failed try, a timer that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Its place in the run's history. Gaps are legal.
    pub seq: u64,
    /// The step it belongs to: the name, with `#2` for the second of that name.
    pub step: String,
    /// What happened.
    pub entry: Entry,
    /// The number of the try it tells of, from 1.
    pub try_number: u32,
    /// The attempt that made it.
    pub attempt: u32,
    /// When the try began, by the store's clock.
    pub began_at: Timestamp,
    /// When it happened, by the store's clock. Never earlier than the record before it.
    pub at: Timestamp,
    /// Whether the workflow function had awaited something that is not from its `Ctx` before it.
    pub foreign: bool,
    /// Whether its step is done and was asked for with an undo.
    pub undoable: bool,
    /// When a retry of the run took it out of the history.
    pub voided_at: Option<Timestamp>,
}

impl Record {
    /// A record of `step` at `seq`, for a store's own tests: first try, first attempt, at `at`.
    pub fn new(seq: u64, step: impl Into<String>, entry: Entry, at: Timestamp) -> Self {
        Self {
            seq,
            step: step.into(),
            entry,
            try_number: 1,
            attempt: 1,
            began_at: at,
            at,
            foreign: false,
            undoable: false,
            voided_at: None,
        }
    }

    /// Bytes of payload, as the history limit counts them.
    pub(crate) fn bytes(&self) -> usize {
        self.step.len() + self.entry.bytes()
    }
}

/// What a record says happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// The step succeeded, with this result. It never changes.
    Done(Json),
    /// The step failed for good.
    Failed(Failure),
    /// One try failed; the next comes at `next_at`.
    TryFailed {
        /// What it failed with.
        failure: Failure,
        /// When the next try is due.
        next_at: Timestamp,
    },
    /// An at-most-once step is about to begin.
    Began,
    /// A timer fired.
    Fired,
    /// A signal came in, with this. It belongs to no wait in particular.
    Arrived(Json),
}

/// The kind of an [`Entry`], as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// See [`Entry::Done`].
    Done,
    /// See [`Entry::Failed`].
    Failed,
    /// See [`Entry::TryFailed`].
    TryFailed,
    /// See [`Entry::Began`].
    Began,
    /// See [`Entry::Fired`].
    Fired,
    /// See [`Entry::Arrived`].
    Arrived,
}

impl RecordKind {
    /// The name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            RecordKind::Done => "done",
            RecordKind::Failed => "failed",
            RecordKind::TryFailed => "try_failed",
            RecordKind::Began => "began",
            RecordKind::Fired => "fired",
            RecordKind::Arrived => "arrived",
        }
    }

    /// Whether a record of this kind ends its step: there is at most one such per step.
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            RecordKind::Done | RecordKind::Failed | RecordKind::Fired | RecordKind::Arrived
        )
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Entry {
    /// The kind of this entry.
    pub const fn kind(&self) -> RecordKind {
        match self {
            Entry::Done(_) => RecordKind::Done,
            Entry::Failed(_) => RecordKind::Failed,
            Entry::TryFailed { .. } => RecordKind::TryFailed,
            Entry::Began => RecordKind::Began,
            Entry::Fired => RecordKind::Fired,
            Entry::Arrived(_) => RecordKind::Arrived,
        }
    }

    /// Bytes of payload, as the history limit counts them.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Entry::Done(json) | Entry::Arrived(json) => json.as_str().len(),
            Entry::Failed(failure) | Entry::TryFailed { failure, .. } => failure.bytes(),
            Entry::Began | Entry::Fired => 0,
        }
    }

    /// The failure it tells of.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Entry::Failed(failure) | Entry::TryFailed { failure, .. } => Some(failure),
            _ => None,
        }
    }
}
