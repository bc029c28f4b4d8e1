//! `cross_process`: the time from a start in one process to the first step in another.
//!
//! Owns: how often it is taken.

use std::time::Duration;

use crate::bench::{Bench, Fallible, Measured, median_us, percentile_us};
use crate::child::{Child, shared_time};
use crate::place::Place;
use crate::role::{REPORT, REPORTED};

const RUNS: usize = 500;

/// The pause before each start, which lets the worker come to rest.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let onward = place.open().await?;
    let mut child = Child::start(place, REPORT, &[]).await?;
    let mut times = Vec::new();
    for number in 0..bench.count(RUNS) {
        tokio::time::sleep(PAUSE).await;
        let begun = shared_time();
        onward.start(REPORTED, &number).await?;
        times.push(child.time().await?.saturating_sub(begun));
    }
    child.end().await?;
    let p99 = percentile_us(times.clone(), 99);
    let measured = Measured::new(median_us(times), "µs", "<= 10000");
    Ok(measured.with("p99", p99))
}
