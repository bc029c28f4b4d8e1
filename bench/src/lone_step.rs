//! `lone_step`: the time of one step while nothing else happens, until it is on disk.
//!
//! Owns: the workflow that it is taken with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Workflow};

use crate::bench::{Bench, Fallible, GAP, Measured, ROUNDS, median_us, payload};
use crate::place::Place;
use crate::raw::Raw;

const LONE_STEPS: Workflow<usize, ()> = Workflow::named("lone-steps");

const STEPS: usize = 1_000;

type Times = Arc<Mutex<Vec<Duration>>>;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let raw = Raw::open(place).await?;
    let steps = bench.count(STEPS) / ROUNDS;
    let mut limits = Vec::new();
    let onward = place.open().await?;
    let times = Times::default();
    let noted = Arc::clone(&times);
    let function = move |ctx, steps| lone_steps(ctx, steps, Arc::clone(&noted));
    let worker = onward.worker().serve(LONE_STEPS, function).start().await?;
    for _ in 0..ROUNDS {
        limits.extend(raw.commits(steps, GAP).await?);
        onward.start(LONE_STEPS, &steps).await?.result().await?;
    }
    worker.shutdown().await?;
    let times = std::mem::take(&mut *lock(&times));
    let measured = Measured::new(
        "lone_step",
        median_us(times),
        "µs",
        bench.aim("ratio <= 1.3", "ratio <= 1.5"),
    );
    Ok(measured.against(median_us(limits)))
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
