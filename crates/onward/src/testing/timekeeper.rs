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

    /// Resolves when something changed after this call.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + '_ {
        // Made here and not at the first poll, so that nothing between is missed.
        let (settled, rested) = (self.clock.changed(), self.watch.rested());
        async move {
            tokio::select! {
                () = settled => {}
                () = rested => {}
            }
        }
    }

    /// Lets this much time pass, and everything happen that is due within it, each at its time.
    pub(super) async fn advance(&self, by: Duration) {
        let _led = Led::by(self);
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
            let changed = self.changed();
            if holds() {
                // Tasks of the test itself are not watched: those that are due get their turn.
                tokio::task::yield_now().await;
                if holds() {
                    return;
                }
                continue;
            }
            changed.await;
        }
    }
}

/// Counts a caller who moves the clock, for as long as it does.
struct Led<'a>(&'a Timekeeper);

impl<'a> Led<'a> {
    fn by(keeper: &'a Timekeeper) -> Self {
        keeper.led.fetch_add(1, Ordering::SeqCst);
        Self(keeper)
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        self.0.led.fetch_sub(1, Ordering::SeqCst);
        // Whoever was held back meanwhile looks again.
        self.0.watch.tell_rested();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// A keeper, and somebody who waits for a run that sleeps for so many hours. Nothing else is
    /// there to wake anybody, so whatever is not told is never heard.
    fn keeper(hours: u32) -> (Arc<Timekeeper>, tokio::task::JoinHandle<()>) {
        let keeper = Arc::new(Timekeeper::new(TestClock::new(), Arc::default()));
        let (clock, due) = (keeper.clock.clone(), keeper.now() + HOUR * hours);
        let wait = keeper.watch.wait(async move { clock.sleep_until(due).await });
        (keeper, tokio::spawn(wait))
    }

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it hangs")
    }

    #[tokio::test]
    async fn time_passes_for_whoever_waits() {
        let (keeper, wait) = keeper(5);
        let begin = keeper.now();
        let kept = async {
            tokio::select! {
                () = keeper.keep() => panic!("there was a time to come"),
                waited = wait => waited.unwrap(),
            }
        };
        soon(kept).await;
        assert_eq!(keeper.now(), begin + 5 * HOUR);
    }

    #[tokio::test]
    async fn whoever_was_held_back_by_an_advance_goes_on_after_it() {
        let (keeper, wait) = keeper(5);
        let begin = keeper.now();
        let keeping = tokio::spawn({
            let keeper = Arc::clone(&keeper);
            async move { keeper.keep().await }
        });
        soon(keeper.advance(HOUR)).await;
        assert_eq!(keeper.now(), begin + HOUR);
        soon(wait).await.unwrap();
        assert_eq!(keeper.now(), begin + 5 * HOUR);
        keeping.abort();
    }

    #[tokio::test]
    async fn a_change_between_the_call_and_the_first_poll_is_not_missed() {
        let (keeper, wait) = keeper(5);
        let changed = keeper.changed();
        tokio::task::yield_now().await;
        assert!(keeper.watch.is_awaited(), "it has lain down meanwhile");
        soon(changed).await;
        wait.abort();
    }
}
