//! Deleting one run, or only its hold on its key.
//!
//! Owns: [`Delete`]. Never touches a run that has not ended; `prune` deletes many that ended long ago.

use super::Answer;
use crate::RunId;

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
    /// it was there. So again: `false`. On one that has not ended: `Conflict`, and nothing changes.
    fn delete_run(&self, run: RunId) -> Answer<'_, bool>;

    /// Frees the key of a run that has ended, so that the next start with it makes a new run, and says
    /// whether the run had it. So again: `false`, also when another run has the key by then. The run
    /// itself stays as it is. On one that has not ended: `Conflict`, and nothing changes, since two
    /// runs would do the work of one key at once.
    fn release_run_key(&self, run: RunId) -> Answer<'_, bool>;
}
