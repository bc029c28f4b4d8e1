//! `sequential_step`: two hundred steps of one run, one after the other, per step.
//!
//! Owns: how many of them.

use std::time::Duration;

use crate::bench::{Bench, Fallible, Measured, median_us};
use crate::flat_history::Stepper;
use crate::place::Place;
use crate::raw::Raw;

const STEPS: usize = 200;

/// Runs, each after as many commits of the raw limit as it has steps.
const RUNS: usize = 15;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let raw = Raw::open(place).await?;
    let stepper = Stepper::start(place).await?;
    let (mut limits, mut times) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(RUNS) {
        limits.push(mean(&raw.commits(STEPS, Duration::ZERO).await?));
        times.push(mean(&stepper.step_times(STEPS + 1).await?));
    }
    stepper.worker.shutdown().await?;
    let measured = Measured::new(
        "sequential_step",
        median_us(times),
        "µs",
        bench.aim("ratio <= 1.3", "ratio <= 1.5"),
    );
    Ok(measured.against(median_us(limits)))
}

fn mean(times: &[Duration]) -> Duration {
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX);
    times.iter().sum::<Duration>() / count.max(1)
}
