//! What a run's own code notes on it: how far it has come, and the lines of its log.
//!
//! Owns: [`Notes`], [`RunProgress`] and [`LogLine`]. Never decides what is kept; the store does, by
//! its rules.

use serde::{Deserialize, Serialize};

use crate::{RunId, Timestamp};

/// What is noted on a run: by its code, and for those who look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// How far it has come, as it last said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RunProgress>,
    /// How many lines its log was given, those that are kept no more included.
    #[serde(default)]
    pub log_lines: u64,
    /// Up to where its function's notes are stored: what a replay does not note again.
    #[serde(default)]
    pub noted: Noted,
    /// What a fork goes by while it replays the records that it took along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Until when its start put it off; nothing if it could begin at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// When the time up to the run's deadline began to count, if that is not the run's start: at its
    /// last retry, or at the start of the run that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_from: Option<Timestamp>,
    /// The time in milliseconds that a child would have, if it has less because its parent has: a retry
    /// gives it this again. 0 if it would have no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_time_ms: Option<i64>,
    /// The run that it still waited for when it ended before its turn: who comes after it waits for
    /// that run too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_behind: Option<RunId>,
}

/// What was given to the function whose records a fork took along, and is in none of them: without it
/// the fork would go on from results that were made with other numbers, at another time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// When the first run of the records began: what [`Ctx::now`](crate::Ctx::now) says first.
    pub began_at: Timestamp,
    /// Whose chance made [`Ctx::random`](crate::Ctx::random) and [`Ctx::uuid`](crate::Ctx::uuid), in
    /// the order of the records.
    pub seeds: Vec<Seed>,
}

/// A run whose chance counts before its last record is given to the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    /// The run.
    pub run: RunId,
    /// The number of that record.
    pub until: u64,
}

/// How far a run has come, in whatever its code counts.
///
/// ```
/// use onward::{RunProgress, Timestamp};
///
/// let progress = RunProgress { done: 30, total: 120, at: Timestamp::from_millis(0) };
/// assert_eq!(progress.percent(), Some(25));
/// assert_eq!(progress.to_string(), "30 of 120 (25 %)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// How much is done.
    pub done: u64,
    /// How much there is to do; 0 when that is not known.
    pub total: u64,
    /// When it was said, by the store's clock.
    pub at: Timestamp,
}

impl RunProgress {
    /// The share that is done, in percent; nothing when the total is not known.
    pub fn percent(&self) -> Option<u64> {
        let share = u128::from(self.done.min(self.total)) * 100;
        let percent = share.checked_div(u128::from(self.total))?;
        u64::try_from(percent).ok()
    }
}

impl std::fmt::Display for RunProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.percent() {
            Some(percent) => write!(f, "{} of {} ({percent} %)", self.done, self.total),
            None => write!(f, "{}", self.done),
        }
    }
}

/// A place among the notes of a workflow function: after the record of this number was delivered,
/// this many of them. It is the same on replay.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Noted {
    /// The highest number of a delivered record.
    pub seq: u64,
    /// The notes since then.
    pub calls: u32,
}

/// A line of a run's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Its number among the run's lines, from 1.
    pub no: u64,
    /// When it was written, by the store's clock.
    pub at: Timestamp,
    /// The step in whose body it was written; nothing for the workflow function's own.
    pub step: Option<String>,
    /// The try of that step.
    pub try_number: Option<u32>,
    /// What it says.
    pub text: String,
}
