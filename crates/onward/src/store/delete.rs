//! Deleting runs: one, only its hold on its key, or many that ended long ago.
//!
//! Owns: [`Delete`], and the data of a prune. Never touches a run that has not ended.

use std::time::Duration;

use super::Answer;
use crate::clock::millis;
use crate::limits::PRUNE_BATCH_MAX;
use crate::{RunId, RunState};

/// A store whose runs can be deleted one by one.
///
/// Beside [`Store`](super::Store), because no run needs it. It is under no lease: a run that has ended
/// has no holder.
///
/// ```
/// use onward::RunId;
/// use onward::store::{Delete, MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::store::Error> {
/// assert!(!MemoryStore::new().delete_run(RunId::new()).await?);
/// # Ok(()) }
/// ```
pub trait Delete: Send + Sync {
    /// Deletes a run that has ended, with all that belongs to it, its key included, and says whether
    /// it was there. So again: `false`. On one that has not ended: `Conflict`, and nothing changes. If it was
    /// asked to end, its children are asked first: nobody else would.
    fn delete_run(&self, run: RunId) -> Answer<'_, bool>;

    /// Frees the key of a run that has ended, so that the next start with it makes a new run, and says
    /// whether the run had it. So again: `false`, also when another run has the key by then. The run
    /// itself stays as it is. On one that has not ended: `Conflict`, and nothing changes, since two
    /// runs would do the work of one key at once.
    fn release_run_key(&self, run: RunId) -> Answer<'_, bool>;
}

/// Which runs to delete.
///
/// ```
/// use onward::{Prune, RunState};
/// use std::time::Duration;
///
/// let month = Duration::from_secs(30 * 24 * 60 * 60);
/// let prune = Prune::older_than(month).states([RunState::Completed]).dry_run();
/// # let _ = prune;
/// ```
#[derive(Clone, Debug)]
pub struct Prune {
    /// Only runs that ended at least this long ago.
    pub older_than_ms: i64,
    /// Only runs in these states; empty: in any final state. Others are passed over.
    pub states: Vec<RunState>,
    /// How many runs in one batch, from 1 to `PRUNE_BATCH_MAX`; a dry run counts without a limit.
    pub limit: usize,
    /// Whether to count only.
    pub dry_run: bool,
}

impl Prune {
    /// Every run that ended at least this long ago, however it ended.
    pub fn older_than(age: Duration) -> Self {
        let older_than_ms = millis(age);
        Self { older_than_ms, states: Vec::new(), limit: PRUNE_BATCH_MAX, dry_run: false }
    }

    /// Only runs in these states.
    #[must_use]
    pub fn states(mut self, states: impl IntoIterator<Item = RunState>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// Counts only.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Whether a run in this state may be deleted.
    pub fn covers(&self, state: RunState) -> bool {
        state.is_final() && (self.states.is_empty() || self.states.contains(&state))
    }
}

/// What a prune did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Runs that were deleted, or would be.
    pub runs: u64,
    /// Whether more match.
    pub more: bool,
}
