//! `waiting_memory`: the live heap bytes that a parked run costs.

use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, RunState, Workflow};

use crate::HEAP;
use crate::bench::{Bench, Fallible, Measured, open};

const LONG_SLEEP: Workflow<u64, ()> = Workflow::named("long-sleep");

/// Runs that are parked before the measure, so that what is allocated once is there.
const FIRST: u64 = 2_000;

const RUNS: usize = 100_000;

const LOOK_EVERY: Duration = Duration::from_millis(100);

const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let scratch = bench.scratch()?;
    let onward = open(scratch.path()).await?;
    let worker = onward.worker().serve(LONG_SLEEP, long_sleep).start().await?;
    let runs = bench.count(RUNS) as u64;
    park(&onward, 0, FIRST).await?;
    let before = HEAP.allocated();
    park(&onward, FIRST, FIRST + runs).await?;
    let more = HEAP.allocated() as f64 - before as f64;
    worker.shutdown().await?;
    Ok(Measured::new("waiting_memory", more / runs as f64, "bytes/run", "<= 16"))
}

async fn long_sleep(ctx: Ctx, _: u64) -> Result<(), Failure> {
    ctx.sleep(Duration::from_secs(24 * 60 * 60)).await;
    Ok(())
}

/// Starts runs and waits until all there are have parked.
async fn park(onward: &Onward, first: u64, end: u64) -> Fallible<()> {
    onward.start_many(LONG_SLEEP, first..end).await?;
    let begun = Instant::now();
    while onward.stats().await?.runs.get(&RunState::Waiting) != Some(&end) {
        if begun.elapsed() > PATIENCE {
            return Err("the runs do not park".into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // Whatever the last of them used is given back.
    tokio::time::sleep(LOOK_EVERY).await;
    Ok(())
}
