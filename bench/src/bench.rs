//! What the measures share: how much is done, medians, and the shape of a figure.
//!
//! Owns: the shape of a figure. Never opens a store.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::place::Kind;

/// A result whose error is only printed.
pub(crate) type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The size of a step's result.
pub(crate) const PAYLOAD_BYTES: usize = 200;

/// The pause that makes a store idle before a lone write.
pub(crate) const GAP: Duration = Duration::from_millis(2);

/// Rounds in which a time and its raw limit take turns, since a disk's mood changes by the second.
pub(crate) const ROUNDS: usize = 5;

/// How the measures are taken, and on which store.
pub(crate) struct Bench {
    /// Whether a rough figure after a short time is enough.
    pub(crate) quick: bool,
    pub(crate) kind: Kind,
    /// Finished runs that each measure finds in its store, but for those that are about some themselves.
    pub(crate) finished: usize,
}

impl Bench {
    /// The aim on the store that is measured.
    pub(crate) fn aim(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self.kind {
            Kind::Sqlite { .. } => sqlite,
            Kind::Postgres { .. } => postgres,
        }
    }

    /// A tenth of `count` where a rough figure is enough.
    pub(crate) fn count(&self, count: usize) -> usize {
        if self.quick { (count / 10).max(1) } else { count }
    }
}

/// Times that workflow functions note.
pub(crate) type Times = Arc<Mutex<Vec<Duration>>>;

/// What a mutex guards, whether or not a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a step gives back.
pub(crate) fn payload() -> String {
    "x".repeat(PAYLOAD_BYTES)
}

/// The middle of some figures; zero of none.
pub(crate) fn median(figures: Vec<f64>) -> f64 {
    percentile(figures, 50)
}

/// The figure that so many percent of them are below; zero of none.
pub(crate) fn percentile(mut figures: Vec<f64>, percent: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() * percent / 100).copied().unwrap_or(0.0)
}

/// The middle of some times, in microseconds.
pub(crate) fn median_us(times: Vec<Duration>) -> f64 {
    percentile_us(times, 50)
}

/// The time that so many percent of them are below, in microseconds.
pub(crate) fn percentile_us(times: Vec<Duration>, percent: usize) -> f64 {
    percentile(times.into_iter().map(|time| time.as_secs_f64() * 1e6).collect(), percent)
}

/// One figure beside its raw limit.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) measure: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) raw: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// Further figures from the same run, by their names.
    #[serde(flatten)]
    pub(crate) more: BTreeMap<&'static str, f64>,
    #[serde(skip)]
    pub(crate) aim: &'static str,
}

impl Measured {
    /// With the ratio of the value to the raw limit.
    pub(crate) fn against(mut self, raw: f64) -> Self {
        self.raw = Some(raw);
        self.ratio = Some(self.value / raw);
        self
    }

    /// With a further figure.
    pub(crate) fn with(mut self, name: &'static str, value: f64) -> Self {
        self.more.insert(name, value);
        self
    }

    /// Without a raw limit, and without the name that it is asked for by.
    pub(crate) fn new(value: f64, unit: &'static str, aim: &'static str) -> Self {
        let (measure, more) = (String::new(), BTreeMap::new());
        Self { measure, value, unit, raw: None, ratio: None, more, aim }
    }

    pub(crate) fn head() -> String {
        let [measure, value, unit] = ["measure", "value", "unit"];
        let [raw, ratio, aim] = ["raw", "ratio", "aim"];
        format!("{measure:<17} {value:>12} {unit:<10} {raw:>12} {ratio:>7}  {aim}")
    }

    pub(crate) fn row(&self) -> String {
        let Self { measure, value, unit, aim, .. } = self;
        let number = |figure: Option<f64>, places: usize| match figure {
            Some(figure) => format!("{figure:.places$}"),
            None => "-".to_owned(),
        };
        let value = number(Some(*value), if *value < 10.0 { 3 } else { 0 });
        let (raw, ratio) = (number(self.raw, 0), number(self.ratio, 2));
        let mut row = format!("{measure:<17} {value:>12} {unit:<10} {raw:>12} {ratio:>7}  {aim}");
        for (name, value) in &self.more {
            // Writing to a text does not fail.
            let _ =
                write!(row, "; {name} {}", number(Some(*value), if *value < 10.0 { 2 } else { 0 }));
        }
        row
    }
}
