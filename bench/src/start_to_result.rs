//! `start_to_result`: a run of one step while nothing else happens, from its start to its result
//! in the caller's hands.
//!
//! Owns: the workflow that it is taken with.

use std::time::Instant;

use onward::{Ctx, Failure, Workflow};

use crate::bench::{Bench, Fallible, GAP, Measured, ROUNDS, median_us, payload};
use crate::place::Place;
use crate::raw::Raw;

const ONE_STEP: Workflow<usize, String> = Workflow::named("one-step");

const RUNS: usize = 1_000;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let raw = Raw::open(place).await?;
    let runs = bench.count(RUNS) / ROUNDS;
    let mut limits = Vec::new();
    let onward = place.open().await?;
    let worker = onward.worker().serve(ONE_STEP, one_step).start().await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        limits.extend(raw.commits(runs, GAP).await?);
        for number in 0..runs {
            tokio::time::sleep(GAP).await;
            let begun = Instant::now();
            onward.start(ONE_STEP, &number).await?.result().await?;
            times.push(begun.elapsed());
        }
    }
    worker.shutdown().await?;
    let measured = Measured::new(
        "start_to_result",
        median_us(times),
        "µs",
        bench.aim("ratio <= 5 / 3", "report"),
    );
    Ok(measured.against(median_us(limits)))
}

async fn one_step(ctx: Ctx, _: usize) -> Result<String, Failure> {
    ctx.step("step", async |_| Ok::<_, Failure>(payload())).await
}
