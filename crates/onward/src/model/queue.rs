//! Queues, as far as people set them up.
//!
//! Owns: [`Queue`], its [`QueueLimits`] and what is counted in it, as plain data. Never counts; the
//! store does, in the transaction of a claim.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Timestamp, WorkerId};

/// How many runs of a queue may be running, and how often one may begin or go on. What is `None` is
/// not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueLimits {
    /// Runs of the queue that are running at once, over all workers.
    pub concurrency: Option<u32>,
    /// Runs of the queue that one worker has at once.
    pub per_worker: Option<u32>,
    /// How often workers are given a run of the queue.
    pub rate: Option<Rate>,
    /// Runs of one lane that are running at once, over all workers.
    pub per_lane: Option<u32>,
}

impl QueueLimits {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// So many runs in any period of this length: grants at both ends of one are in two periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// The length of the period.
    pub period_ms: i64,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = u64::try_from(self.period_ms).unwrap_or(0);
        let period = humantime::format_duration(std::time::Duration::from_millis(period));
        write!(f, "{} per {period}", self.count)
    }
}

/// A queue as it is set up. One that nobody set up has no limits and is not paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: QueueLimits,
    /// Since when it is paused: nobody is given a run of it.
    pub paused_at: Option<Timestamp>,
    /// When it was last set up otherwise; `None`: never.
    pub changed_at: Option<Timestamp>,
}

impl Queue {
    /// A queue that nobody set up.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Whether there is anything that a claim must heed.
    pub fn is_limited(&self) -> bool {
        self.paused_at.is_some() || !self.limits.is_none()
    }
}

/// A queue with what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// The queue.
    #[serde(flatten)]
    pub queue: Queue,
    /// Runs that are queued.
    pub queued: u64,
    /// Runs that are running, those of dead workers included until they are taken over.
    pub running: u64,
    /// When the queued run that waits longest was due.
    pub oldest_due_at: Option<Timestamp>,
}

/// What keeps a run of a queue from being claimed, as far as it is the queue's doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueUse {
    /// The queue.
    pub queue: Queue,
    /// Runs of it that are running.
    pub running: u64,
    /// Runs of the lane in question that are running.
    pub lane_running: u64,
    /// Runs of it that each worker has, of the workers that have any.
    pub held: Vec<(WorkerId, u64)>,
    /// When the rate allows the next run, if it allows none now.
    pub rate_until: Option<Timestamp>,
}
