//! What a store counts: runs by state and by queue, and its workers.
//!
//! Owns: the answer of `stats`. Never says what follows from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{RunState, Timestamp, WorkerId};

/// Counts of runs, and the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Runs by state.
    pub runs: BTreeMap<RunState, u64>,
    /// Queued runs by queue.
    pub queued: BTreeMap<String, u64>,
    /// The workers that are neither lost nor known to be dead.
    pub workers: Vec<WorkerInfo>,
}

/// A worker, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Its name.
    pub id: WorkerId,
    /// The build of its code.
    pub build: String,
    /// The host and process it lives in.
    pub place: String,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The workflows it serves.
    pub workflows: Vec<String>,
    /// Until when its lease holds.
    pub lease_until: Timestamp,
    /// Runs that it holds.
    pub running: u64,
    /// How many it executes at once; `None` for one that joined before this was kept.
    pub concurrency: Option<u32>,
}

impl WorkerInfo {
    /// Whether it has as many runs as it executes at once.
    pub fn is_full(&self) -> bool {
        self.concurrency.is_some_and(|places| self.running >= u64::from(places))
    }
}
