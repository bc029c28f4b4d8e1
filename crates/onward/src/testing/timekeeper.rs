//! The timekeeper: moves a test clock when nothing else is left to do.
//!
//! Owns: when time passes in a test. Never moves the clock while a task of the client is awake, a
//! body executes, or somebody who was woken by the clock has not looked at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::watch::Watch;
use crate::{Clock, TestClock, Timestamp};

/// A clock and those for whom it is moved.
pub(super) struct Timekeeper {
    pub(super) clock: TestClock,
    pub(super) watch: Arc<Watch>,
    /// How many callers move the clock by hand; time does not pass by itself meanwhile.
    led: AtomicUsize,
}

impl Timekeeper {
    pub(super) fn new(clock: TestClock, watch: Arc<Watch>) -> Self {
        Self { clock, watch, led: AtomicUsize::new(0) }
    }

    /// Lets time pass whenever somebody waits for a run and nothing is left to do before the next
    /// time on the clock. Returns when there is no such time: then nothing will happen by itself.
    pub(super) async fn keep(&self) {
        loop {
            self.until(|| self.is_time_wanted()).await;
            match self.clock.next_due() {
                Some(due) => self.clock.move_to(due),
                None => return,
            }
        }
    }

    /// Resolves when something changed after a [`keep`](Self::keep) that found nothing to come.
    pub(super) async fn changed(&self) {
        tokio::select! {
            () = self.clock.changed() => {}
            () = self.watch.rested() => {}
        }
    }

    /// Lets this much time pass, and everything happen that is due within it, each at its time.
    pub(super) async fn advance(&self, by: Duration) {
        let _led = Led::by(&self.led);
        let end = self.clock.now() + by;
        self.quiet().await;
        while let Some(due) = self.clock.next_due().filter(|due| *due <= end) {
            self.clock.move_to(due);
            self.quiet().await;
        }
        self.clock.move_to(end);
        self.quiet().await;
    }

    /// Waits until nothing is left to do at this time.
    pub(super) async fn quiet(&self) {
        self.until(|| self.is_quiet()).await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn is_quiet(&self) -> bool {
        self.watch.is_quiet() && self.clock.is_settled()
    }

    fn is_time_wanted(&self) -> bool {
        self.is_quiet() && self.watch.is_awaited() && self.led.load(Ordering::SeqCst) == 0
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let (settled, rested) = (self.clock.changed(), self.watch.rested());
            if holds() {
                // Tasks of the test itself are not watched: those that are due get their turn.
                tokio::task::yield_now().await;
                if holds() {
                    return;
                }
                continue;
            }
            tokio::select! {
                () = settled => {}
                () = rested => {}
            }
        }
    }
}

/// Counts a caller who moves the clock, for as long as it does.
struct Led<'a>(&'a AtomicUsize);

impl<'a> Led<'a> {
    fn by(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
