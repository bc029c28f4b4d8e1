//! The worker's side of a driver: what it is told, and whether it still does something.
//!
//! Owns: the reasons to stop, of which the strongest counts, and the worker's doubt about a driver that is
//! still. Never knows what the driver does.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::wake::Wakes;

/// What a driver is told by its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Let bodies finish, then give the run back.
    Release = 0,
    /// Let bodies finish within the grace time, then end the run as out of time.
    Deadline = 1,
    /// Let bodies finish within the grace time, then end the run as cancelled.
    Cancel = 2,
    /// Drop everything: the lease is lost, or the worker's grace time is over.
    Drop = 3,
}

/// The worker's side of a driver.
#[derive(Default)]
pub(crate) struct Control {
    /// A bit for each [`Stop`] that was asked for.
    stops: AtomicU8,
    /// Set once the driver runs.
    wakes: OnceLock<Arc<Wakes>>,
    /// How often the driver had looked for something to do when the worker last asked, and how often
    /// in a row the worker was told the same.
    looks: AtomicU64,
    still: AtomicU32,
}

impl Control {
    /// Notes how a driver is woken, once it runs.
    pub(super) fn drive(&self, wakes: &Arc<Wakes>) {
        let _ = self.wakes.set(Arc::clone(wakes));
    }

    /// Tells the driver to stop; the strongest reason counts.
    pub(crate) fn stop(&self, stop: Stop) {
        self.stops.fetch_or(1 << stop as u8, Ordering::SeqCst);
        if let Some(wakes) = self.wakes.get() {
            wakes.nudge();
        }
    }

    /// Has the driver look whether it missed a wake, if it did nothing while the worker asked so
    /// often in a row.
    pub(crate) fn doubt_if_still(&self, times: u32) {
        let Some(wakes) = self.wakes.get() else { return };
        let looks = wakes.looks();
        if self.looks.swap(looks, Ordering::Relaxed) != looks {
            self.still.store(0, Ordering::Relaxed);
        } else if self.still.fetch_add(1, Ordering::Relaxed) + 1 == times {
            wakes.doubt();
        }
    }

    /// Whether a driver has it.
    pub(crate) fn is_driven(&self) -> bool {
        self.wakes.get().is_some()
    }

    pub(super) fn asked(&self) -> Option<Stop> {
        self.strongest(&[Stop::Drop, Stop::Cancel, Stop::Deadline, Stop::Release])
    }

    /// What the worker itself asks for, whatever is asked of the run.
    pub(super) fn asked_to_leave(&self) -> Option<Stop> {
        self.strongest(&[Stop::Drop, Stop::Release])
    }

    fn strongest(&self, of: &[Stop]) -> Option<Stop> {
        let stops = self.stops.load(Ordering::SeqCst);
        of.iter().copied().find(|stop| stops & (1 << *stop as u8) != 0)
    }
}
