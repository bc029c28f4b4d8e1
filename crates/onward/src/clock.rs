//! Times and clocks.
//!
//! Owns: [`Timestamp`], and the clock that a store reads. Never mixes clocks: whatever is compared
//! with a stored time comes from the store's clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::limits::DURATION_MAX;
use crate::store::BoxFuture;

/// A moment, in milliseconds since 1970 (UTC), by the store's clock.
///
/// ```
/// use onward::Timestamp;
/// use std::time::Duration;
///
/// let t = Timestamp::from_millis(1_700_000_000_000);
/// assert_eq!(t.to_string(), "2023-11-14T22:13:20.000Z");
/// assert_eq!((t + Duration::from_secs(60)).since(t), Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment that many milliseconds after 1970 began.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970 began.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(millis(duration)))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(millis(after)),
            Err(before) => Timestamp(-millis(before.duration())),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_millis(time.0.unsigned_abs());
        if time.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The formatter takes years 1970 to 9999; anything else is shown as a number.
        if (0..=253_402_300_799_999).contains(&self.0) {
            write!(f, "{}", humantime::format_rfc3339_millis(SystemTime::from(*self)))
        } else {
            write!(f, "{} ms", self.0)
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A duration as whole milliseconds, cut at [`DURATION_MAX`].
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.min(DURATION_MAX).as_millis()).unwrap_or(i64::MAX)
}

/// Where a store takes its times from.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Resolves when the clock may have reached `due`. It may resolve early; look again.
    fn sleep_until(&self, due: Timestamp) -> BoxFuture<'_, ()>;
}

/// The machine's clock.
///
/// It may be set back, and then times repeat: within a run the driver keeps them in order, and a
/// lease or a timer lasts longer by that much. A clock that stood still instead until the old time
/// is reached again would hold up every timer.
#[derive(Debug, Default)]
pub struct SystemClock;

/// The longest single timer of the runtime; longer sleeps look at the clock again after it.
pub(crate) const TIMER_MAX: Duration = Duration::from_secs(60 * 60);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }

    fn sleep_until(&self, due: Timestamp) -> BoxFuture<'_, ()> {
        let pause = due.since(self.now()).min(TIMER_MAX);
        Box::pin(tokio::time::sleep(pause))
    }
}
