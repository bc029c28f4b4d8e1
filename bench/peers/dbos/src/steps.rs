//! `steps_100`, `steps_1000`: whole runs of five steps, many at once, in steps a second.
//!
//! Owns: how many runs are in flight, and the raw limit on either side of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dbos::WorkflowRef;
use tokio::task::JoinSet;

use crate::bench::{Bench, Fallible, Measured, median, payload};
use crate::raw::Raw;

const STEPS: usize = 5;

/// Figures of the raw limit on either side of the measure.
const RAW_FIGURES: usize = 3;

/// How much at once.
pub(crate) struct Load {
    measure: &'static str,
    runs: usize,
    in_flight: usize,
}

pub(crate) const HUNDRED: Load = Load { measure: "steps_100", runs: 10_000, in_flight: 100 };

pub(crate) const THOUSAND: Load = Load { measure: "steps_1000", runs: 60_000, in_flight: 1_000 };

pub(crate) async fn measure(bench: &Bench, load: Load) -> Fallible<Measured> {
    let mut raw = Raw::open(&bench.url).await?;
    let mut limits = Vec::new();
    for _ in 0..RAW_FIGURES {
        limits.push(raw.rows_per_second().await?);
    }
    let peer = bench.peer();
    let workflow = peer.register_workflow("five-steps", five_steps)?;
    peer.launch().await?;
    let runs = bench.count(load.runs);
    let begun = Instant::now();
    start_all(&workflow, runs, load.in_flight).await?;
    let took = begun.elapsed();
    peer.shutdown().await;
    for _ in 0..RAW_FIGURES {
        limits.push(raw.rows_per_second().await?);
    }
    raw.close().await?;
    let steps_per_second = (runs * STEPS) as f64 / took.as_secs_f64();
    Ok(Measured::rate(load.measure, steps_per_second, median(limits)))
}

async fn five_steps(number: usize) -> dbos::Result<usize> {
    for _ in 0..STEPS {
        dbos::step("step", || async { dbos::Result::Ok(payload()) }).await?;
    }
    Ok(number)
}

/// Starts runs and awaits their results, so many at once.
async fn start_all(
    workflow: &WorkflowRef<usize, usize>,
    runs: usize,
    in_flight: usize,
) -> Fallible<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut starters = JoinSet::new();
    for _ in 0..in_flight {
        let (workflow, next) = (workflow.clone(), Arc::clone(&next));
        starters.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= runs {
                    return Ok::<_, dbos::Error>(());
                }
                workflow.run(number).await?;
            }
        });
    }
    while let Some(ended) = starters.join_next().await {
        ended??;
    }
    Ok(())
}
