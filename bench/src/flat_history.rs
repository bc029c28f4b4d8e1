//! `flat_history`: the thousandth step of a run against its tenth.
//!
//! Owns: the worker that notes when each step of a run begins.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Worker, Workflow};

use crate::bench::{Bench, Fallible, Measured, median_us, payload};
use crate::place::Place;

const MANY_STEPS: Workflow<usize, ()> = Workflow::named("many-steps");

const EARLY: usize = 10;
const LATE: usize = 1_000;

/// Steps on either side of the one in question that are measured with it.
const AROUND: usize = 8;

const RUNS: usize = 20;

type Begun = Arc<Mutex<Vec<Instant>>>;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let stepper = Stepper::start(place).await?;
    let mut runs = Vec::new();
    for _ in 0..bench.count(RUNS) {
        runs.push(stepper.step_times(LATE + AROUND + 2).await?);
    }
    stepper.worker.shutdown().await?;
    let window = |step: usize| {
        let around = step - AROUND..=step + AROUND;
        median_us(runs.iter().flat_map(|times| times[around.clone()].to_vec()).collect())
    };
    let measured = Measured::new("flat_history", window(LATE), "µs", "ratio <= 1.2");
    Ok(measured.against(window(EARLY)))
}

/// A worker that notes when the bodies of a run's steps begin.
pub(crate) struct Stepper {
    onward: Onward,
    pub(crate) worker: Worker,
    begun: Begun,
}

impl Stepper {
    pub(crate) async fn start(place: &Place) -> Fallible<Self> {
        let onward = place.open().await?;
        let begun = Begun::default();
        let noted = Arc::clone(&begun);
        let function = move |ctx, steps| many_steps(ctx, steps, Arc::clone(&noted));
        let worker = onward.worker().serve(MANY_STEPS, function).start().await?;
        Ok(Self { onward, worker, begun })
    }

    /// The time of each step of a run: from the begin of its body to the begin of the next one's,
    /// by when its result is on disk.
    pub(crate) async fn step_times(&self, steps: usize) -> Fallible<Vec<Duration>> {
        self.onward.start(MANY_STEPS, &steps).await?.result().await?;
        let begun = std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(begun.windows(2).map(|pair| pair[1] - pair[0]).collect())
    }
}

async fn many_steps(ctx: Ctx, steps: usize, begun: Begun) -> Result<(), Failure> {
    for _ in 0..steps {
        let step = ctx.step("step", async |_| {
            begun.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            Ok::<_, Failure>(payload())
        });
        step.await?;
    }
    Ok(())
}
