//! Upkeep: what every worker does for all.
//!
//! Owns: the rhythm of sweeping, that schedules are fired beside it, and that a cancel reaches children.
//! Never judges others before its own lease has been steady for one lease, so that after an outage nobody
//! takes everybody's runs.

use std::sync::Arc;
use std::time::Duration;

use crate::Timestamp;
use crate::limits::CASCADE_PASSES_MAX;
use crate::store::{self, ExpiredLeases, Store, Sweep};
use crate::worker::tenure::Tenure;

/// The longest pause between two sweeps: a dead worker's runs are taken over within one lease
/// and this.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(1);

/// How long after a lease expired its worker is looked at: clocks are not exact.
const AFTER_EXPIRY: Duration = Duration::from_millis(100);

/// Sweeps and fires schedules for as long as the tenure lasts.
pub(crate) async fn keep_up(store: Arc<dyn Store>, tenure: Arc<Tenure>, lease: Duration) {
    // In a task of its own, which ends with this one: whatever befalls it, sweeping goes on.
    #[cfg(feature = "schedules")]
    let mut firing = tokio::task::JoinSet::new();
    #[cfg(feature = "schedules")]
    firing.spawn(crate::schedule::keep_firing(Arc::clone(&store), Arc::clone(&tenure)));
    sweep(store, tenure, lease).await;
}

/// Sweeps for as long as the tenure lasts; the first time at once.
async fn sweep(store: Arc<dyn Store>, tenure: Arc<Tenure>, lease: Duration) {
    let pause = (lease / 4).min(SWEEP_EVERY_MAX);
    while !tenure.is_over() {
        let mut wait = pause;
        let expired = if tenure.is_steady() { ExpiredLeases::Take } else { ExpiredLeases::Leave };
        match store.sweep(Sweep { worker: tenure.worker, expired }).await {
            Ok(swept) => {
                for worker in &swept.lost {
                    tracing::warn!(%worker, "a worker is gone");
                }
                if !swept.taken.is_empty() {
                    tracing::info!(runs = swept.taken.len(), "took back runs of workers gone");
                }
                if swept.more {
                    continue;
                }
                wait = until(&*store, swept.next_at, lease, pause);
            }
            Err(store::Error::LeaseLost) => return tenure.end(),
            Err(error) => tracing::warn!(%error, "cannot sweep; again soon"),
        }
        tokio::time::sleep(wait).await;
    }
}

/// Asks the children of runs that were just asked to end, and theirs, so that nobody waits for
/// the next sweep. What cannot be done now is left to that.
pub(crate) async fn cascade(store: &dyn Store) {
    let Some(steer) = store.steer() else { return };
    for _ in 0..CASCADE_PASSES_MAX {
        match steer.cascade().await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return tracing::debug!(%error, "children are left to the next sweep"),
        }
    }
}

/// The pause before the next sweep. A store that says when the next lease expires is asked again
/// just after, since until then nobody can have died unnoticed; but at least once in a lease, for
/// whatever else a sweep finds.
fn until(
    store: &dyn Store,
    next_at: Option<Timestamp>,
    lease: Duration,
    pause: Duration,
) -> Duration {
    match next_at {
        Some(next_at) => (next_at.since(store.clock().now()) + AFTER_EXPIRY).min(lease).max(pause),
        None => pause,
    }
}
