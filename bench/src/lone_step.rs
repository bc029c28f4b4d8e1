//! `lone_step`: the time of one step while nothing else happens, until it is on disk; where several
//! processes take it, the time of one step of each while nothing happens but theirs.
//!
//! Owns: the workflow that it is taken with.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Worker, Workflow};

use crate::bench::{Bench, Fallible, GAP, Measured, ROUNDS, Times, lock, median_us, payload};
use crate::place::Place;
use crate::raw::Raw;
use crate::role;
use crate::share::Share;
use crate::team::Team;

const LONE_STEPS: Workflow<usize, ()> = Workflow::named("lone-steps");

const STEPS: usize = 1_000;

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    let raw = Raw::open(place, processes).await?;
    let mut team = Team::start(place, role::LONE_STEPS, processes, 1).await?;
    let steps = bench.count(STEPS) / ROUNDS;
    let mut limits = Vec::new();
    for _ in 0..ROUNDS {
        limits.extend(raw.commits(steps, GAP).await?);
        team.work(steps).await?;
    }
    let times = team.times().await?;
    team.end().await?;
    let aim = bench.aim("ratio <= 1.3", "ratio <= 1.5");
    Ok(Measured::new(median_us(times), "µs", aim).against(median_us(limits)))
}

/// A caller of one run at a time, and a worker that notes the times of lone steps.
pub(crate) struct LoneSteps {
    onward: Onward,
    worker: Worker,
    times: Times,
}

impl Share for LoneSteps {
    async fn begin(onward: Onward, _: usize) -> Fallible<Self> {
        let times = Times::default();
        let noted = Arc::clone(&times);
        let function = move |ctx, steps| lone_steps(ctx, steps, Arc::clone(&noted));
        let worker = onward.worker().serve(LONE_STEPS, function).start().await?;
        Ok(Self { onward, worker, times })
    }

    async fn work(&mut self, steps: usize) -> Fallible<()> {
        Ok(self.onward.start(LONE_STEPS, &steps).await?.result().await?)
    }

    fn times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut *lock(&self.times))
    }

    async fn end(self) -> Fallible<()> {
        Ok(self.worker.shutdown().await?)
    }
}

/// Each body idles, then ends. No body begins before the result of the one before is on disk, so
/// the time of a step is that from the end of its body to the begin of the next one's.
async fn lone_steps(ctx: Ctx, steps: usize, times: Times) -> Result<(), Failure> {
    let ended = Mutex::new(None::<Instant>);
    for _ in 0..=steps {
        let step = ctx.step("lone", async |_| {
            if let Some(ended) = lock(&ended).take() {
                lock(&times).push(ended.elapsed());
            }
            tokio::time::sleep(GAP).await;
            *lock(&ended) = Some(Instant::now());
            Ok::<_, Failure>(payload())
        });
        step.await?;
    }
    Ok(())
}
