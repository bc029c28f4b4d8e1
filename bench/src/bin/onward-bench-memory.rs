//! The process that `waiting_memory` and `in_flight_memory` are measured in, because its allocator
//! counts: every allocation then costs an atomic that all threads share, which the other measures
//! must not pay.
//!
//! Owns: the workflows that they are taken with.
//!
//! `onward-bench-memory URL waiting|in-flight RUNS` prints the live heap bytes that one parked run
//! costs, or one whose step executes.

use std::alloc::System;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cap::Cap;
use onward::{Ctx, Failure, Onward, RunState, Workflow};

/// The heap, counted.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

const LONG_SLEEP: Workflow<u64, ()> = Workflow::named("long-sleep");

const LONG_STEP: Workflow<u64, ()> = Workflow::named("long-step");

/// What runs are called whose step executes; the others wait.
const IN_FLIGHT: &str = "in-flight";

/// Runs that are there before the measure, so that what is allocated once is too.
const FIRST: u64 = 2_000;

/// Steps that execute.
static EXECUTING: AtomicU64 = AtomicU64::new(0);

const LOOK_EVERY: Duration = Duration::from_millis(100);

const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, which, runs] = &arguments[..] else {
        return Err("usage: onward-bench-memory URL waiting|in-flight RUNS".into());
    };
    let runs: u64 = runs.parse()?;
    let onward = Onward::open(url).await?;
    let worker = onward.worker().serve(LONG_SLEEP, long_sleep).serve(LONG_STEP, long_step);
    let mut worker = worker.shutdown_grace(Duration::ZERO);
    if which == IN_FLIGHT {
        worker = worker.concurrency(usize::try_from(FIRST + runs)?);
    }
    let worker = worker.start().await?;
    hold(&onward, which, 0..FIRST).await?;
    let before = HEAP.allocated();
    hold(&onward, which, FIRST..FIRST + runs).await?;
    println!("{}", (HEAP.allocated() as f64 - before as f64) / runs as f64);
    worker.shutdown().await?;
    Ok(())
}

async fn long_sleep(ctx: Ctx, _: u64) -> Result<(), Failure> {
    ctx.sleep(Duration::from_secs(24 * 60 * 60)).await;
    Ok(())
}

async fn long_step(ctx: Ctx, _: u64) -> Result<(), Failure> {
    let step = ctx.step("long", async |_| {
        EXECUTING.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<(), Failure>>().await
    });
    step.await
}

/// Starts runs and waits until all there are wait, or execute their step.
async fn hold(onward: &Onward, which: &str, numbers: std::ops::Range<u64>) -> Fallible<()> {
    let end = numbers.end;
    let workflow = if which == IN_FLIGHT { LONG_STEP } else { LONG_SLEEP };
    onward.start_many(workflow, numbers).await?;
    let begun = Instant::now();
    while there(onward, which).await? != end {
        if begun.elapsed() > PATIENCE {
            return Err(format!("the runs are not {which}").into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // Whatever the last of them used is given back.
    tokio::time::sleep(LOOK_EVERY).await;
    Ok(())
}

async fn there(onward: &Onward, which: &str) -> Fallible<u64> {
    if which == IN_FLIGHT {
        return Ok(EXECUTING.load(Ordering::Relaxed));
    }
    Ok(onward.stats().await?.runs.get(&RunState::Waiting).copied().unwrap_or(0))
}
