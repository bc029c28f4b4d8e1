//! `start_to_result`: a run of one step while nothing else happens, from its start to its result
//! in the caller's hands.
//!
//! Owns: the caller's clock.

use std::time::Instant;

use crate::bench::{Bench, Fallible, GAP, Measured, ROUNDS, payload};
use crate::raw::Raw;

const RUNS: usize = 1_000;

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let mut raw = Raw::open(&bench.url).await?;
    let runs = bench.count(RUNS) / ROUNDS;
    let (mut limits, mut times) = (Vec::new(), Vec::new());
    let peer = bench.peer();
    let workflow = peer.register_workflow("one-step", one_step)?;
    peer.launch().await?;
    for _ in 0..ROUNDS {
        limits.extend(raw.commits(runs, GAP).await?);
        for number in 0..runs {
            tokio::time::sleep(GAP).await;
            let begun = Instant::now();
            workflow.run(number).await?;
            times.push(begun.elapsed());
        }
    }
    peer.shutdown().await;
    raw.close().await?;
    Ok(Measured::time("start_to_result", times, limits))
}

async fn one_step(_: usize) -> dbos::Result<String> {
    dbos::step("step", || async { dbos::Result::Ok(payload()) }).await
}
