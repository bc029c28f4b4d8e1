//! `same_key`: two thousand starts with one key from fifty callers, in calls a second.
//!
//! Owns: the callers.

use std::time::Instant;

use onward::{Ctx, Failure, RunId, Workflow};
use tokio::task::JoinSet;

use crate::bench::{Bench, Fallible, Measured, payload};
use crate::place::Place;

const ONE_STEP: Workflow<u64, String> = Workflow::named("one-step");

const CALLERS: usize = 50;

const CALLS: usize = 2_000;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let onward = place.open().await?;
    let worker = onward.worker().serve(ONE_STEP, one_step).start().await?;
    let calls = bench.count(CALLS) / CALLERS;
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let onward = onward.clone();
        callers.spawn(async move {
            let mut runs = Vec::with_capacity(calls);
            for _ in 0..calls {
                runs.push(onward.start(ONE_STEP, &1).key("the key").await?.id());
            }
            Ok::<_, onward::Error>(runs)
        });
    }
    let mut runs: Vec<RunId> = Vec::new();
    while let Some(called) = callers.join_next().await {
        runs.extend(called??);
    }
    let took = begun.elapsed();
    worker.shutdown().await?;
    let count = runs.len();
    runs.dedup();
    if runs.len() != 1 {
        return Err("one key gave more than one run".into());
    }
    let value = count as f64 / took.as_secs_f64();
    Ok(Measured::new("same_key", value, "calls/s", "report"))
}

async fn one_step(ctx: Ctx, _: u64) -> Result<String, Failure> {
    ctx.step("step", async |_| Ok::<_, Failure>(payload())).await
}
