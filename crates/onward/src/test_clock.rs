//! A clock that tests move.
//!
//! Owns: [`TestClock`], who sleeps on it and until when. Never moves by itself, and never by a
//! timer of the machine.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::store::BoxFuture;
use crate::{Clock, Timestamp};

/// Where a test clock stands unless it is told: the beginning of 2026.
const BEGIN: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A clock that stands still until it is moved: for tests of code that waits.
///
/// ```
/// use onward::{Clock, TestClock};
/// use std::time::Duration;
///
/// let clock = TestClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone)]
pub struct TestClock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    face: Mutex<Face>,
    /// Notified when somebody lies down, and when everybody who was woken has looked.
    changed: Notify,
}

#[derive(Debug)]
struct Face {
    now: Timestamp,
    id_next: u64,
    /// Who sleeps, by the time until which.
    asleep: BTreeMap<(Timestamp, u64), Waker>,
    /// Those who were woken and have not looked at the clock since.
    woken: HashSet<u64>,
}

impl TestClock {
    /// A clock that stands at a fixed moment in 2026.
    pub fn new() -> Self {
        Self::at(BEGIN)
    }

    /// A clock that stands at this moment.
    ///
    /// ```
    /// use onward::{Clock, TestClock, Timestamp};
    ///
    /// let leap_day = Timestamp::from_millis(1_709_164_800_000);
    /// assert_eq!(TestClock::at(leap_day).now().to_string(), "2024-02-29T00:00:00.000Z");
    /// ```
    pub fn at(now: Timestamp) -> Self {
        let face = Face { now, id_next: 0, asleep: BTreeMap::new(), woken: HashSet::new() };
        Self(Arc::new(Shared { face: Mutex::new(face), changed: Notify::new() }))
    }

    /// Moves the clock forward and wakes whoever has slept for long enough.
    pub fn advance(&self, by: Duration) {
        self.move_to(self.now() + by);
    }

    /// Sets the clock back, as somebody does who corrects one that was ahead. Whoever sleeps sleeps on until
    /// the time that was asked for.
    pub fn set_back(&self, by: Duration) {
        let mut face = self.lock();
        let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        face.now = Timestamp::from_millis(face.now.as_millis().saturating_sub(ms));
    }

    /// Moves the clock to a moment that lies ahead; it never goes back.
    pub(crate) fn move_to(&self, time: Timestamp) {
        let mut guard = self.lock();
        let face = &mut *guard;
        face.now = face.now.max(time);
        let later = face.asleep.split_off(&(face.now + Duration::from_millis(1), 0));
        let due = std::mem::replace(&mut face.asleep, later);
        face.woken.extend(due.keys().map(|(_, id)| *id));
        drop(guard);
        due.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Face> {
        self.0.face.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "testing")]
impl TestClock {
    /// The next moment that somebody sleeps until.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.lock().asleep.keys().next().map(|(due, _)| *due)
    }

    /// Whether everybody who was woken has looked at the clock since.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().woken.is_empty()
    }

    /// Resolves when, after this call, somebody lay down or the last who was woken looked.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.changed.notified()
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn sleep_until(&self, due: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(Sleeper { clock: self.clone(), due, id: None })
    }
}

/// One who sleeps on the clock.
struct Sleeper {
    clock: TestClock,
    due: Timestamp,
    /// Its name among the sleepers, from its first poll on.
    id: Option<u64>,
}

impl Sleeper {
    /// Takes itself off the clock's lists; says whether it was the last who had not looked.
    fn leave(&mut self, face: &mut Face) -> bool {
        let Some(id) = self.id.take() else { return false };
        face.asleep.remove(&(self.due, id));
        face.woken.remove(&id) && face.woken.is_empty()
    }
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut face = clock.lock();
        if face.now >= self.due {
            let last = self.leave(&mut face);
            drop(face);
            if last {
                clock.0.changed.notify_waiters();
            }
            return Poll::Ready(());
        }
        let new = self.id.is_none();
        let id = *self.id.get_or_insert_with(|| {
            face.id_next += 1;
            face.id_next
        });
        face.asleep.insert((self.due, id), cx.waker().clone());
        drop(face);
        if new {
            clock.0.changed.notify_waiters();
        }
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let clock = self.clock.clone();
        let last = self.leave(&mut clock.lock());
        if last {
            clock.0.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleeper_is_woken_at_its_time_and_not_before() {
        let clock = TestClock::new();
        let begin = clock.now();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(begin + Duration::from_secs(2)).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.unwrap();
    }

    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn the_clock_knows_who_was_woken_and_has_not_looked() {
        let clock = TestClock::new();
        let due = clock.now() + Duration::from_secs(5);
        let mut sleep = clock.sleep_until(due);
        assert_eq!(clock.next_due(), None, "nobody has lain down yet");
        assert!(futures::poll!(&mut sleep).is_pending());
        assert_eq!(clock.next_due(), Some(due));
        clock.move_to(due);
        assert!(!clock.is_settled() && clock.next_due().is_none());
        assert!(futures::poll!(&mut sleep).is_ready());
        assert!(clock.is_settled());
    }

    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn a_sleeper_that_goes_leaves_nothing_behind() {
        let clock = TestClock::new();
        let due = clock.now() + Duration::from_secs(5);
        let mut sleeps = [clock.sleep_until(due), clock.sleep_until(due)];
        for sleep in &mut sleeps {
            assert!(futures::poll!(sleep).is_pending());
        }
        let [first, second] = sleeps;
        drop(first);
        assert_eq!(clock.next_due(), Some(due));
        clock.move_to(due);
        drop(second);
        assert!(clock.is_settled() && clock.next_due().is_none());
    }
}
