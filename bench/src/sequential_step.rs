//! `sequential_step`: two hundred steps of one run, one after the other, per step.

use std::time::Duration;

use crate::bench::{Bench, Fallible, Measured, median_us};
use crate::flat_history::step_times;
use crate::raw::Raw;

const STEPS: usize = 200;

const RUNS: usize = 10;

/// Commits of the raw limit.
const COMMITS: usize = 1_000;

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let scratch = bench.scratch()?;
    let raw = Raw::open(scratch.path())?;
    let commits = bench.count(COMMITS);
    let limit_before = raw.commit_us(commits, Duration::ZERO)?;
    let runs = step_times(scratch.path(), STEPS, bench.count(RUNS)).await?;
    let limit_after = raw.commit_us(commits, Duration::ZERO)?;
    let per_step = runs.into_iter().map(|times| {
        let steps = u32::try_from(times.len()).unwrap_or(u32::MAX);
        times.iter().sum::<Duration>() / steps.max(1)
    });
    let value = median_us(per_step.collect());
    let measured = Measured::new("sequential_step", value, "µs", "ratio <= 1.3");
    Ok(measured.against((limit_before + limit_after) / 2.0))
}
