//! The process that `waiting_memory` is measured in, because its allocator counts: every
//! allocation then costs an atomic that all threads share, which the other measures must not pay.
//!
//! `onward-bench-memory URL RUNS` prints the live heap bytes that one parked run costs.

use std::alloc::System;
use std::error::Error;
use std::time::{Duration, Instant};

use cap::Cap;
use onward::{Ctx, Failure, Onward, RunState, Workflow};

/// The heap, counted.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

const LONG_SLEEP: Workflow<u64, ()> = Workflow::named("long-sleep");

/// Runs that are parked before the measure, so that what is allocated once is there.
const FIRST: u64 = 2_000;

const LOOK_EVERY: Duration = Duration::from_millis(100);

const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, runs] = &arguments[..] else {
        return Err("usage: onward-bench-memory URL RUNS".into());
    };
    let runs: u64 = runs.parse()?;
    let onward = Onward::open(url).await?;
    let worker = onward.worker().serve(LONG_SLEEP, long_sleep).start().await?;
    park(&onward, 0, FIRST).await?;
    let before = HEAP.allocated();
    park(&onward, FIRST, FIRST + runs).await?;
    println!("{}", (HEAP.allocated() as f64 - before as f64) / runs as f64);
    worker.shutdown().await?;
    Ok(())
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
