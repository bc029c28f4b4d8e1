//! What the measures share: the peer as its documentation sets it up, medians, and the shape of a
//! figure, which is that of Onward's own bench.
//!
//! Owns: the peer's settings, and how a figure is printed.

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dbos::{Config, DBOS};
use serde::Serialize;

/// A result whose error is only printed.
pub(crate) type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The schema in which everything is measured, dropped before and after each measure.
pub(crate) const SCHEMA: &str = "onward_bench_peer";

/// The size of a step's result.
const PAYLOAD_BYTES: usize = 200;

/// The pause that makes a server idle before a lone write.
pub(crate) const GAP: Duration = Duration::from_millis(2);

/// Rounds in which a time and its raw limit take turns, since a disk's mood changes by the second.
pub(crate) const ROUNDS: usize = 5;

/// How and where the measures are taken.
pub(crate) struct Bench {
    /// Whether a rough figure after a short time is enough.
    pub(crate) quick: bool,
    pub(crate) url: String,
    pub(crate) connections: u32,
}

impl Bench {
    /// The peer with its defaults, save for the schema, the version that it demands and the size
    /// of its pool. It neither connects nor makes its tables before it is launched.
    pub(crate) fn peer(&self) -> DBOS {
        DBOS::new(Config {
            app_version: Some("bench".to_owned()),
            schema: SCHEMA.to_owned(),
            max_connections: self.connections,
            ..Config::new("onward-bench", &self.url)
        })
    }

    /// A tenth of `count` where a rough figure is enough.
    pub(crate) fn count(&self, count: usize) -> usize {
        if self.quick { (count / 10).max(1) } else { count }
    }
}

/// What a step gives back.
pub(crate) fn payload() -> String {
    "x".repeat(PAYLOAD_BYTES)
}

/// The middle of some figures; zero of none.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// The middle of some times, in microseconds.
pub(crate) fn median_us(times: Vec<Duration>) -> f64 {
    median(times.into_iter().map(|time| time.as_secs_f64() * 1e6).collect())
}

/// What a mutex guards, whether or not a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One figure beside its raw limit.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    measure: &'static str,
    value: f64,
    unit: &'static str,
    raw: f64,
    ratio: f64,
}

impl Measured {
    /// Steps a second, beside the raw limit's rows a second.
    pub(crate) fn rate(measure: &'static str, value: f64, raw: f64) -> Self {
        Self { measure, value, unit: "steps/s", raw, ratio: value / raw }
    }

    /// The median of some times, beside that of the raw limit's.
    pub(crate) fn time(measure: &'static str, times: Vec<Duration>, raw: Vec<Duration>) -> Self {
        let (value, raw) = (median_us(times), median_us(raw));
        Self { measure, value, unit: "µs", raw, ratio: value / raw }
    }

    pub(crate) fn head() -> String {
        let [measure, value, unit] = ["measure", "value", "unit"];
        let [raw, ratio] = ["raw", "ratio"];
        format!("{measure:<16} {value:>12} {unit:<10} {raw:>12} {ratio:>7}")
    }

    pub(crate) fn row(&self) -> String {
        let Self { measure, value, unit, raw, ratio } = self;
        format!("{measure:<16} {value:>12.0} {unit:<10} {raw:>12.0} {ratio:>7.3}")
    }
}
