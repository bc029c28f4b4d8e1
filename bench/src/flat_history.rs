//! `flat_history`: the thousandth step of a run against its tenth.
//!
//! Owns: the worker that notes how long each step of a run takes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Worker, Workflow};

use crate::bench::{Bench, Fallible, Measured, Times, lock, median_us, payload};
use crate::place::Place;
use crate::role;
use crate::share::Share;
use crate::team::Team;

const MANY_STEPS: Workflow<usize, ()> = Workflow::named("many-steps");

const EARLY: usize = 10;
const LATE: usize = 1_000;

/// Steps on either side of the one in question that are measured with it.
const AROUND: usize = 8;

/// Steps of a run.
const STEPS: usize = LATE + AROUND + 1;

const RUNS: usize = 20;

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    let mut team = Team::start(place, role::MANY_STEPS, processes, 1).await?;
    for _ in 0..bench.count(RUNS) {
        team.work(STEPS).await?;
    }
    let times = team.times().await?;
    team.end().await?;
    let window = |step: usize| {
        let around = step - AROUND..=step + AROUND;
        median_us(times.chunks(STEPS).flat_map(|run| run[around.clone()].to_vec()).collect())
    };
    Ok(Measured::new(window(LATE), "µs", "ratio <= 1.2").against(window(EARLY)))
}

/// A caller of one run at a time, and a worker that notes the times of a run's steps.
pub(crate) struct ManySteps {
    onward: Onward,
    worker: Worker,
    times: Times,
}

impl Share for ManySteps {
    async fn begin(onward: Onward, _: usize) -> Fallible<Self> {
        let times = Times::default();
        let noted = Arc::clone(&times);
        let function = move |ctx, steps| many_steps(ctx, steps, Arc::clone(&noted));
        let worker = onward.worker().serve(MANY_STEPS, function).start().await?;
        Ok(Self { onward, worker, times })
    }

    async fn work(&mut self, steps: usize) -> Fallible<()> {
        Ok(self.onward.start(MANY_STEPS, &steps).await?.result().await?)
    }

    /// The times of whole runs, one run after the other.
    fn times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut *lock(&self.times))
    }

    async fn end(self) -> Fallible<()> {
        Ok(self.worker.shutdown().await?)
    }
}

/// The time of each step is that from the begin of its body to the begin of the next one's, by when
/// its result is on disk; so there is a step more than there are times.
async fn many_steps(ctx: Ctx, steps: usize, times: Times) -> Result<(), Failure> {
    let begun = Mutex::new(Vec::with_capacity(steps + 1));
    for _ in 0..=steps {
        let step = ctx.step("step", async |_| {
            lock(&begun).push(Instant::now());
            Ok::<_, Failure>(payload())
        });
        step.await?;
    }
    lock(&times).extend(lock(&begun).windows(2).map(|pair| pair[1] - pair[0]));
    Ok(())
}
