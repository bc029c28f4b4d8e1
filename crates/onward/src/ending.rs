//! Endings: how a run that ends in this process reaches whoever waits for it here.
//!
//! Owns: the waiters by run. Never the truth: a run that ends in another process is found in the
//! store, and a driver that leaves without an ending sends its waiters there.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::store::End;
use crate::waiting::{Seat, Waiting};
use crate::{Failure, Json, Run, RunId, RunState};

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) run: RunId,
    pub(crate) state: RunState,
    pub(crate) output: Option<Json>,
    pub(crate) failure: Option<Failure>,
}

impl Ending {
    /// The ending that a settle with this end makes, if it makes one that needs no look.
    pub(crate) fn of_settle(run: RunId, end: &End) -> Option<Self> {
        let (state, output, failure): (_, _, Option<Failure>) = match end {
            End::Completed(output) => (RunState::Completed, Some(output.clone()), None),
            End::Cancelled => (RunState::Cancelled, None, None),
            // A failed run may have been retried by the time that this is heard.
            End::Failed { .. }
            | End::Continued { .. }
            | End::Parked { .. }
            | End::Stuck { .. }
            | End::Released => {
                return None;
            }
        };
        Some(Self { run, state, output, failure })
    }

    /// The ending of a run that has ended.
    pub(crate) fn of_run(run: Run) -> Self {
        Self { run: run.id, state: run.state, output: run.output, failure: run.failure }
    }
}

/// Who waits for which run.
#[derive(Default)]
pub(crate) struct Endings {
    waiting: Arc<Waiting<RunId, Cell>>,
}

#[derive(Default)]
struct Cell {
    told: Notify,
    ending: OnceLock<Ending>,
}

impl Endings {
    /// Registers interest; what is told from here on reaches the waiter.
    pub(crate) fn wait(&self, run: RunId) -> EndingWaiter {
        EndingWaiter { seat: self.waiting.enter(run) }
    }

    /// Tells the waiters how their run ended, or with `None` that they should look for themselves.
    pub(crate) fn tell(&self, run: RunId, ending: Option<Ending>) {
        // Taken out, so that whoever waits after a retry of the run does not find an old ending.
        let Some(cell) = self.waiting.take(run) else { return };
        if let Some(ending) = ending {
            let _ = cell.ending.set(ending);
        }
        cell.told.notify_waiters();
    }
}

/// A registered wait for an ending.
pub(crate) struct EndingWaiter {
    seat: Seat<RunId, Cell>,
}

impl EndingWaiter {
    /// Resolves when something was told: the ending, or `None` to look for oneself.
    pub(crate) async fn told(&self) -> Option<Ending> {
        let cell = self.seat.shared();
        let told = cell.told.notified();
        // Whoever tells takes the place away first.
        if !self.is_told() {
            told.await;
        }
        cell.ending.get().cloned()
    }

    /// Whether something was told.
    pub(crate) fn is_told(&self) -> bool {
        self.seat.is_taken()
    }
}
