//! `start_to_result`: a run of one step while nothing else happens, from its start to its result
//! in the caller's hands; where several processes take it, while nothing happens but one run of each.
//!
//! Owns: the workflow that it is taken with.

use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Worker, Workflow};

use crate::bench::{Bench, Fallible, GAP, Measured, ROUNDS, median_us, payload};
use crate::place::Place;
use crate::raw::Raw;
use crate::role;
use crate::share::Share;
use crate::team::Team;

const ONE_STEP: Workflow<usize, String> = Workflow::named("one-step");

const RUNS: usize = 1_000;

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    let raw = Raw::open(place, processes).await?;
    let mut team = Team::start(place, role::LONE_RUNS, processes, 1).await?;
    let runs = bench.count(RUNS) / ROUNDS;
    let mut limits = Vec::new();
    for _ in 0..ROUNDS {
        limits.extend(raw.commits(runs, GAP).await?);
        team.work(runs).await?;
    }
    let times = team.times().await?;
    team.end().await?;
    let aim = bench.aim("ratio <= 5 / 3", "report");
    Ok(Measured::new(median_us(times), "µs", aim).against(median_us(limits)))
}

/// A caller of one run at a time, which notes how long it waits, and a worker.
pub(crate) struct LoneRuns {
    onward: Onward,
    worker: Worker,
    times: Vec<Duration>,
}

impl Share for LoneRuns {
    async fn begin(onward: Onward, _: usize) -> Fallible<Self> {
        let worker = onward.worker().serve(ONE_STEP, one_step).start().await?;
        Ok(Self { onward, worker, times: Vec::new() })
    }

    async fn work(&mut self, runs: usize) -> Fallible<()> {
        for number in 0..runs {
            tokio::time::sleep(GAP).await;
            let begun = Instant::now();
            self.onward.start(ONE_STEP, &number).await?.result().await?;
            self.times.push(begun.elapsed());
        }
        Ok(())
    }

    fn times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.times)
    }

    async fn end(self) -> Fallible<()> {
        Ok(self.worker.shutdown().await?)
    }
}

async fn one_step(ctx: Ctx, _: usize) -> Result<String, Failure> {
    ctx.step("step", async |_| Ok::<_, Failure>(payload())).await
}
