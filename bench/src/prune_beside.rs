//! `prune_beside`: steps a second while finished runs are pruned, against without.
//!
//! Owns: how many runs there are to prune, and how long the workers are watched beside it.

use std::time::Duration;

use onward::Prune;

use crate::bench::{Bench, Fallible, Measured};
use crate::fill;
use crate::place::Place;
use crate::role;
use crate::steps::rate;
use crate::team::Team;

/// Runs that are there to be pruned: more than are pruned while the workers are watched.
const FINISHED: usize = 100_000;

/// Runs of the workers for one figure.
const RUNS: usize = 10_000;

const IN_FLIGHT: usize = 100;

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    fill::finished(place, bench.count(FINISHED)).await?;
    let onward = place.open().await?;
    let mut team = Team::start(place, role::STEPS, processes, IN_FLIGHT / processes).await?;
    let each = bench.count(RUNS) / processes;
    let before = team.work(each).await?;
    let pruning =
        tokio::spawn(async move { onward.prune(Prune::older_than(Duration::ZERO)).await });
    let beside = team.work(each).await?;
    if pruning.is_finished() {
        return Err("the prune was over before the workers had been watched".into());
    }
    pruning.abort();
    let after = team.work(each).await?;
    team.end().await?;
    let rate = |took| rate(each * processes, took);
    let without = f64::midpoint(rate(before), rate(after));
    Ok(Measured::new(rate(beside), "steps/s", "ratio >= 0.7").against(without))
}
