//! `start_to_result`: a run of one step while nothing else happens, from its start to its result
//! in the caller's hands.

use std::time::Instant;

use onward::{Ctx, Failure, Workflow};

use crate::bench::{Bench, Fallible, GAP, Measured, ROUNDS, median_us, open, payload};
use crate::raw::Raw;

const ONE_STEP: Workflow<usize, String> = Workflow::named("one-step");

const RUNS: usize = 1_000;

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let scratch = bench.scratch()?;
    let raw = Raw::open(scratch.path())?;
    let runs = bench.count(RUNS) / ROUNDS;
    let mut limits = Vec::new();
    let onward = open(scratch.path()).await?;
    let worker = onward.worker().serve(ONE_STEP, one_step).start().await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        limits.extend(raw.commits(runs, GAP)?);
        for number in 0..runs {
            tokio::time::sleep(GAP).await;
            let begun = Instant::now();
            onward.start(ONE_STEP, &number).await?.result().await?;
            times.push(begun.elapsed());
        }
    }
    worker.shutdown().await?;
    let measured = Measured::new("start_to_result", median_us(times), "µs", "ratio <= 5 / 3");
    Ok(measured.against(median_us(limits)))
}

async fn one_step(ctx: Ctx, _: usize) -> Result<String, Failure> {
    ctx.step("step", async |_| Ok::<_, Failure>(payload())).await
}
