//! `steps_100`, `steps_1000`: whole runs of five steps, many at once, in steps a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use onward::{Ctx, Failure, Onward, Workflow};
use tokio::task::JoinSet;

use crate::bench::{Bench, Fallible, Measured, median, open, payload};
use crate::raw::Raw;

const FIVE_STEPS: Workflow<usize, usize> = Workflow::named("five-steps");

const STEPS: usize = 5;

/// Figures of the raw limit on either side of the measure.
const RAW_FIGURES: usize = 3;

/// How much at once.
pub(crate) struct Load {
    measure: &'static str,
    runs: usize,
    in_flight: usize,
    aim: &'static str,
}

pub(crate) const HUNDRED: Load =
    Load { measure: "steps_100", runs: 2_000, in_flight: 100, aim: "ratio >= 0.15 / 0.25" };

pub(crate) const THOUSAND: Load =
    Load { measure: "steps_1000", runs: 20_000, in_flight: 1_000, aim: "ratio >= 0.25 / 0.5" };

pub(crate) async fn measure(bench: &Bench, load: Load) -> Fallible<Measured> {
    let scratch = bench.scratch()?;
    let raw = Raw::open(scratch.path())?;
    let mut limits = Vec::new();
    for _ in 0..RAW_FIGURES {
        limits.push(raw.rows_per_second()?);
    }
    let onward = open(scratch.path()).await?;
    let worker = onward.worker().serve(FIVE_STEPS, five_steps).concurrency(load.in_flight);
    let worker = worker.start().await?;
    let runs = bench.count(load.runs);
    let begun = Instant::now();
    start_all(&onward, runs, load.in_flight).await?;
    let took = begun.elapsed();
    worker.shutdown().await?;
    for _ in 0..RAW_FIGURES {
        limits.push(raw.rows_per_second()?);
    }
    let steps_per_second = (runs * STEPS) as f64 / took.as_secs_f64();
    let measured = Measured::new(load.measure, steps_per_second, "steps/s", load.aim);
    Ok(measured.against(median(limits)))
}

async fn five_steps(ctx: Ctx, number: usize) -> Result<usize, Failure> {
    for _ in 0..STEPS {
        ctx.step("step", async |_| Ok::<_, Failure>(payload())).await?;
    }
    Ok(number)
}

/// Starts runs and awaits their results, so many at once.
async fn start_all(onward: &Onward, runs: usize, in_flight: usize) -> Fallible<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut starters = JoinSet::new();
    for _ in 0..in_flight {
        let (onward, next) = (onward.clone(), Arc::clone(&next));
        starters.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= runs {
                    return Ok::<_, onward::Error>(());
                }
                onward.start(FIVE_STEPS, &number).await?.result().await?;
            }
        });
    }
    while let Some(ended) = starters.join_next().await {
        ended??;
    }
    Ok(())
}
