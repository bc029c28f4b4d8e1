//! When a failed step is tried again.
//!
//! Owns: [`Retry`] and the pure decision "again, after how long?". Never sleeps and never
//! records; the driver does both.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Failure;
use crate::limits::RETRY_DELAY_MAX;

/// How a step is tried again after a failure.
///
/// The default is exponential with full jitter: 200 ms doubling up to 30 s, five tries in all.
///
/// ```
/// use onward::Retry;
/// use std::time::Duration;
///
/// let patient = Retry::exponential(Duration::from_millis(200))
///     .tries(8)
///     .cap(Duration::from_secs(10))
///     .within(Duration::from_secs(300));
/// let steady = Retry::fixed(Duration::from_secs(5)).tries(3);
/// let custom = Retry::custom(|try_number| Duration::from_secs(u64::from(try_number)));
/// let picky = Retry::default().retry_if(|failure| !failure.is("not_found"));
/// # let _ = (patient, steady, custom, picky);
/// ```
#[derive(Clone)]
pub struct Retry {
    delay: Delay,
    tries: u32,
    cap: Duration,
    within: Option<Duration>,
    wanted: Option<Wanted>,
}

/// Says whether a failure is worth another try.
type Wanted = Arc<dyn Fn(&Failure) -> bool + Send + Sync>;

#[derive(Clone)]
enum Delay {
    Exponential { first: Duration },
    Fixed { each: Duration },
    Custom { of: Arc<dyn Fn(u32) -> Duration + Send + Sync> },
}

/// What has happened to a step so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried {
    /// The number of the try that failed, from 1.
    pub(crate) number: u32,
    /// The time since the first try began.
    pub(crate) elapsed: Duration,
    /// A number from 0 to 1 for the jitter.
    pub(crate) chance: f64,
}

impl Retry {
    /// One try only.
    pub fn never() -> Self {
        Self::fixed(Duration::ZERO).tries(1)
    }

    /// The same delay before each further try; five tries in all.
    pub fn fixed(each: Duration) -> Self {
        Self::with(Delay::Fixed { each })
    }

    /// A delay that doubles from `first`, with full jitter: each is drawn between zero and that.
    pub fn exponential(first: Duration) -> Self {
        Self::with(Delay::Exponential { first })
    }

    /// A delay of your own, from the number of the try that failed (1 for the first).
    pub fn custom(of: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self::with(Delay::Custom { of: Arc::new(of) })
    }

    fn with(delay: Delay) -> Self {
        Self { delay, tries: 5, cap: Duration::from_secs(30), within: None, wanted: None }
    }

    /// How many tries there are in all; at least one.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// The longest delay of an exponential retry.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap.min(RETRY_DELAY_MAX);
        self
    }

    /// No try begins later than this after the first one began.
    #[must_use]
    pub fn within(mut self, total: Duration) -> Self {
        self.within = Some(total);
        self
    }

    /// Tries again only where this says so; a fatal failure is never tried again.
    #[must_use]
    pub fn retry_if(mut self, wanted: impl Fn(&Failure) -> bool + Send + Sync + 'static) -> Self {
        self.wanted = Some(Arc::new(wanted));
        self
    }

    /// The pause before the next try, or `None` when this failure is final.
    pub(crate) fn next(&self, tried: Tried, failure: &Failure) -> Option<Duration> {
        let refused = self.wanted.as_ref().is_some_and(|wanted| !wanted(failure));
        if !failure.retryable || refused || tried.number >= self.tries {
            return None;
        }
        let pause = failure.retry_after.unwrap_or_else(|| self.pause(tried));
        let pause = pause.min(RETRY_DELAY_MAX);
        match self.within {
            Some(total) if tried.elapsed + pause > total => None,
            _ => Some(pause),
        }
    }

    fn pause(&self, tried: Tried) -> Duration {
        match &self.delay {
            Delay::Fixed { each } => *each,
            Delay::Custom { of } => of(tried.number),
            Delay::Exponential { first } => {
                let factor = 2_u32.saturating_pow(tried.number.saturating_sub(1));
                first.saturating_mul(factor).min(self.cap).mul_f64(tried.chance.clamp(0.0, 1.0))
            }
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(200))
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("tries", &self.tries).field("cap", &self.cap).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(number: u32) -> Tried {
        Tried { number, elapsed: Duration::ZERO, chance: 1.0 }
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        let retry = Retry::exponential(Duration::from_millis(200)).tries(100);
        let failure = Failure::new("x");
        let pauses: Vec<_> =
            [1, 2, 3, 50].map(|n| retry.next(tried(n), &failure).unwrap().as_millis()).into();
        assert_eq!(pauses, [200, 400, 800, 30_000]);
    }

    #[test]
    fn the_last_try_is_final() {
        let failure = Failure::new("x");
        assert!(Retry::default().next(tried(4), &failure).is_some());
        assert!(Retry::default().next(tried(5), &failure).is_none());
        assert!(Retry::never().next(tried(1), &failure).is_none());
    }

    #[test]
    fn a_fatal_failure_is_final() {
        assert!(Retry::default().next(tried(1), &Failure::fatal("x")).is_none());
    }

    #[test]
    fn the_other_side_names_the_delay() {
        let failure = Failure::retry_after(Duration::from_secs(7), "busy");
        assert_eq!(Retry::default().next(tried(1), &failure), Some(Duration::from_secs(7)));
    }

    #[test]
    fn the_total_time_is_kept() {
        let retry = Retry::fixed(Duration::from_secs(5)).within(Duration::from_secs(12));
        let late = Tried { elapsed: Duration::from_secs(8), ..tried(2) };
        assert!(retry.next(tried(1), &Failure::new("x")).is_some());
        assert!(retry.next(late, &Failure::new("x")).is_none());
    }

    #[test]
    fn retry_if_is_asked() {
        let retry = Retry::default().retry_if(|failure| failure.is("busy"));
        assert!(retry.next(tried(1), &Failure::new("x")).is_none());
        assert!(retry.next(tried(1), &Failure::new("x").code("busy")).is_some());
    }
}
