//! How often a caller may ask.
//!
//! Owns: a bucket for each caller, filled by the second. Never waits; it says for how long to.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::RATE_CALLERS_MAX;

/// The buckets of all callers.
pub(crate) struct Rates {
    burst: f64,
    per_second: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        let (burst, per_second) = (f64::from(burst.max(1)), f64::from(per_second.max(1)));
        Self { burst, per_second, buckets: Mutex::default() }
    }

    /// Takes one request from the caller's bucket, or says when there is one again.
    pub(crate) fn take(&self, caller: &str) -> Result<(), Duration> {
        self.take_at(caller, Instant::now())
    }

    fn take_at(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= RATE_CALLERS_MAX && !buckets.contains_key(caller) {
            self.forget(&mut buckets, now);
        }
        let fresh = Bucket { left: self.burst, at: now };
        let bucket = buckets.entry(caller.to_owned()).or_insert(fresh);
        bucket.left = self.left(bucket, now);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.left) / self.per_second))
    }

    fn left(&self, bucket: &Bucket, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.left + passed * self.per_second).min(self.burst)
    }

    /// Forgets callers whose buckets are full, which says nothing about them; if nobody's is, all.
    fn forget(&self, buckets: &mut HashMap<String, Bucket>, now: Instant) {
        buckets.retain(|_, bucket| self.left(bucket, now) < self.burst);
        if buckets.len() >= RATE_CALLERS_MAX {
            buckets.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_gets_its_burst_and_then_its_rate() {
        let (rates, now) = (Rates::new(3, 2), Instant::now());
        for _ in 0..3 {
            assert!(rates.take_at("ada", now).is_ok());
        }
        assert_eq!(rates.take_at("ada", now), Err(Duration::from_millis(500)));
        assert!(rates.take_at("bob", now).is_ok(), "others are not held up");
        let later = now + Duration::from_millis(500);
        assert!(rates.take_at("ada", later).is_ok());
        assert!(rates.take_at("ada", later).is_err());
    }

    #[test]
    fn callers_do_not_grow_in_number_for_ever() {
        let (rates, now) = (Rates::new(3, 2), Instant::now());
        for caller in 0..RATE_CALLERS_MAX + 10 {
            rates.take_at(&caller.to_string(), now).unwrap();
        }
        assert!(rates.buckets.lock().unwrap().len() <= RATE_CALLERS_MAX);
    }
}
