//! The hub: wake-ups inside one process.
//!
//! Owns: who waits for what. Never says what happened: a waiter looks at the store again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::RunId;
use crate::waiting::{Seat, Waiting};

/// What one can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A run may be claimable, or a running one may have been marked.
    Work,
    /// This run's state may have changed. A record alone does not say so: whoever waits for a
    /// result would look at the run again at every step.
    Run(RunId),
    /// A schedule may come sooner than it was known to.
    Schedules,
    /// Anything of the above, whichever it was: what whoever shows a store to people waits for.
    Any,
}

/// Whoever waits in this process, by topic. Stores notify it after a commit.
#[derive(Default)]
pub struct Hub {
    work: Arc<Notify>,
    schedules: Arc<Notify>,
    any: Arc<Notify>,
    runs: Arc<Waiting<RunId, Notify>>,
}

impl Hub {
    /// Registers interest; what is notified from here on is seen by the waiter.
    pub fn wait(&self, topic: Topic) -> Waiter {
        match topic {
            Topic::Work => Waiter::new(Arc::clone(&self.work), None),
            Topic::Schedules => Waiter::new(Arc::clone(&self.schedules), None),
            Topic::Any => Waiter::new(Arc::clone(&self.any), None),
            Topic::Run(run) => {
                let seat = self.runs.enter(run);
                Waiter::new(Arc::clone(seat.shared()), Some(seat))
            }
        }
    }

    /// Wakes whoever waits for this.
    pub fn notify(&self, topic: Topic) {
        self.any.notify_waiters();
        match topic {
            Topic::Any => {}
            Topic::Work => self.work.notify_waiters(),
            Topic::Schedules => self.schedules.notify_waiters(),
            Topic::Run(run) => {
                if let Some(notify) = self.runs.get(run) {
                    notify.notify_waiters();
                }
            }
        }
    }

    /// Wakes everybody: the store changed in a way that this process cannot tell.
    pub fn notify_all(&self) {
        self.any.notify_waiters();
        self.work.notify_waiters();
        self.schedules.notify_waiters();
        self.runs.all().iter().for_each(|notify| notify.notify_waiters());
    }

    /// Whether anybody waits for anything.
    pub fn is_watched(&self) -> bool {
        let waits = |topic| Arc::strong_count(topic) > 1;
        waits(&self.work) || waits(&self.schedules) || waits(&self.any) || self.runs.len() > 0
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("runs", &self.runs.len()).finish()
    }
}

/// A registered wait. Resolves at the first notification after it was made.
#[must_use = "a waiter waits when it is awaited"]
pub struct Waiter {
    notified: Pin<Box<OwnedNotified>>,
    _seat: Option<Seat<RunId, Notify>>,
}

impl Waiter {
    fn new(notify: Arc<Notify>, seat: Option<Seat<RunId, Notify>>) -> Self {
        Self { notified: Box::pin(notify.notified_owned()), _seat: seat }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_whose_waiters_all_went_is_not_watched() {
        let hub = Hub::default();
        let run = RunId::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        drop((hub.wait(Topic::Run(run)), hub.wait(Topic::Work)));
                    }
                });
            }
        });
        assert!(!hub.is_watched());
    }
}
