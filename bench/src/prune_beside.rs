//! `prune_beside`: steps a second while finished runs are pruned, against without.
//!
//! Owns: how many runs there are to prune, and how long the workers are watched beside it.

use std::time::{Duration, Instant};

use onward::{Onward, Prune};

use crate::bench::{Bench, Fallible, Measured};
use crate::fill;
use crate::place::Place;
use crate::steps::{STEPS, start_all, worker};

/// Runs that are there to be pruned: more than are pruned while the workers are watched.
const FINISHED: usize = 100_000;

/// Runs of the workers for one figure.
const RUNS: usize = 10_000;

const IN_FLIGHT: usize = 100;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    fill::finished(place, bench.count(FINISHED)).await?;
    let (onward, other) = (place.open().await?, place.open().await?);
    let worker = worker(&onward, IN_FLIGHT).await?;
    let runs = bench.count(RUNS);
    let before = rate(&onward, runs).await?;
    let pruning = tokio::spawn(async move { other.prune(Prune::older_than(Duration::ZERO)).await });
    let beside = rate(&onward, runs).await?;
    if pruning.is_finished() {
        return Err("the prune was over before the workers had been watched".into());
    }
    pruning.abort();
    let after = rate(&onward, runs).await?;
    worker.shutdown().await?;
    let without = f64::midpoint(before, after);
    Ok(Measured::new("prune_beside", beside, "steps/s", "ratio >= 0.7").against(without))
}

async fn rate(onward: &Onward, runs: usize) -> Fallible<f64> {
    let begun = Instant::now();
    start_all(onward, runs, IN_FLIGHT).await?;
    Ok((runs * STEPS) as f64 / begun.elapsed().as_secs_f64())
}
