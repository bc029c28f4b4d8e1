//! `sequential_step`: two hundred steps of one run, one after the other, per step; where several
//! processes take it, of one run of each at the same time.
//!
//! Owns: how many of them.

use std::time::Duration;

use crate::bench::{Bench, Fallible, Measured, median_us};
use crate::place::Place;
use crate::raw::Raw;
use crate::role;
use crate::team::Team;

const STEPS: usize = 200;

/// Runs, each after as many commits of the raw limit as it has steps.
const RUNS: usize = 15;

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    let raw = Raw::open(place, processes).await?;
    let mut team = Team::start(place, role::MANY_STEPS, processes, 1).await?;
    let (mut limits, mut times) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(RUNS) {
        limits.extend(means(&raw.commits(STEPS, Duration::ZERO).await?));
        team.work(STEPS).await?;
        times.extend(means(&team.times().await?));
    }
    team.end().await?;
    let aim = bench.aim("ratio <= 1.3", "ratio <= 1.5");
    Ok(Measured::new(median_us(times), "µs", aim).against(median_us(limits)))
}

/// The mean of each run, or of as many commits.
fn means(times: &[Duration]) -> impl Iterator<Item = Duration> {
    let steps = u32::try_from(STEPS).unwrap_or(u32::MAX);
    times.chunks(STEPS).map(move |run| run.iter().sum::<Duration>() / steps)
}
