//! The hub: wake-ups inside one process.
//!
//! Owns: who waits for what. Never says what happened: a waiter looks at the store again.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::RunId;

/// What one can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A run may be claimable, or a running one may have been marked.
    Work,
    /// This run's state may have changed. A record alone does not say so: whoever waits for a
    /// result would look at the run again at every step.
    Run(RunId),
}

/// Whoever waits in this process, by topic. Stores notify it after a commit.
#[derive(Default)]
pub struct Hub {
    work: Arc<Notify>,
    runs: Arc<Mutex<HashMap<RunId, Arc<Notify>>>>,
}

impl Hub {
    /// Registers interest; what is notified from here on is seen by the waiter.
    pub fn wait(&self, topic: Topic) -> Waiter {
        match topic {
            Topic::Work => Waiter::new(Arc::clone(&self.work), None),
            Topic::Run(run) => {
                let notify = Arc::clone(lock(&self.runs).entry(run).or_default());
                let leave =
                    Leave { run, notify: Arc::clone(&notify), runs: Arc::clone(&self.runs) };
                Waiter::new(notify, Some(leave))
            }
        }
    }

    /// Wakes whoever waits for this.
    pub fn notify(&self, topic: Topic) {
        match topic {
            Topic::Work => self.work.notify_waiters(),
            Topic::Run(run) => {
                let waiting = lock(&self.runs).get(&run).map(Arc::clone);
                if let Some(notify) = waiting {
                    notify.notify_waiters();
                }
            }
        }
    }

    /// Wakes everybody: the store changed in a way that this process cannot tell.
    pub fn notify_all(&self) {
        self.work.notify_waiters();
        let runs: Vec<_> = lock(&self.runs).values().map(Arc::clone).collect();
        runs.iter().for_each(|notify| notify.notify_waiters());
    }

    /// Whether anybody waits for a run or for work.
    pub fn is_watched(&self) -> bool {
        Arc::strong_count(&self.work) > 1 || !lock(&self.runs).is_empty()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("runs", &lock(&self.runs).len()).finish()
    }
}

/// A registered wait. Resolves at the first notification after it was made.
pub struct Waiter {
    notified: Pin<Box<OwnedNotified>>,
    _leave: Option<Leave>,
}

impl Waiter {
    fn new(notify: Arc<Notify>, leave: Option<Leave>) -> Self {
        Self { notified: Box::pin(notify.notified_owned()), _leave: leave }
    }
}

impl Future for Waiter {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.notified.as_mut().poll(cx)
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}

/// Takes a run out of the map when its last waiter goes.
struct Leave {
    run: RunId,
    notify: Arc<Notify>,
    runs: Arc<Mutex<HashMap<RunId, Arc<Notify>>>>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut runs = lock(&self.runs);
        // The map's own count and this one; the waiter's future is dropped before it.
        if Arc::strong_count(&self.notify) <= 2 {
            runs.remove(&self.run);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
