//! Upkeep: what every worker does for all.
//!
//! Owns: the rhythm of sweeping. Never judges others before its own lease has been steady for
//! one lease, so that after an outage nobody takes everybody's runs.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{self, ExpiredLeases, Store, Sweep};
use crate::worker::tenure::Tenure;

/// The longest pause between two sweeps: a dead worker's runs are taken over within one lease
/// and this.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(1);

/// Sweeps for as long as the tenure lasts; the first time at once.
pub(crate) async fn sweep(store: Arc<dyn Store>, tenure: Arc<Tenure>, lease: Duration) {
    let pause = (lease / 4).min(SWEEP_EVERY_MAX);
    while !tenure.is_over() {
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
            }
            Err(store::Error::LeaseLost) => return tenure.end(),
            Err(error) => tracing::warn!(%error, "cannot sweep; again soon"),
        }
        tokio::time::sleep(pause).await;
    }
}
