//! `raw_rows_1`, `raw_rows_16`, `raw_rows_64`, `raw_rows_batch`: what the server itself does, in
//! rows a second: one row in a commit from so many clients, or a hundred from one.
//!
//! Owns: how long it is watched. Never opens a store.

use std::time::Duration;

use crate::bench::{Bench, Fallible, Measured, median};
use crate::place::{Made, Place};
use crate::raw::{Raw, commits_per_second};

/// How long clients commit for one figure.
const LASTING: Duration = Duration::from_secs(3);

const FIGURES: usize = 5;

/// One row in each commit.
pub(crate) async fn measure(bench: &Bench, place: &Place, clients: usize) -> Fallible<Measured> {
    let rate = single(bench, place, clients).await?;
    Ok(Measured::new(rate, "rows/s", "the limit"))
}

/// Commits of one row a second, by so many clients.
pub(crate) async fn single(bench: &Bench, place: &Place, clients: usize) -> Fallible<f64> {
    let Made::Schema { url, name } = &place.made else {
        return Err("only a server has clients".into());
    };
    let lasting = if bench.quick { LASTING / 10 } else { LASTING };
    commits_per_second(url, name, clients, lasting).await
}

/// A hundred rows in each commit, as for the ratio of `steps_1000`.
pub(crate) async fn batch(place: &Place) -> Fallible<Measured> {
    let raw = Raw::open(place, 1).await?;
    let mut rates = Vec::new();
    for _ in 0..FIGURES {
        rates.push(raw.rows_per_second().await?);
    }
    Ok(Measured::new(median(rates), "rows/s", "the limit"))
}
