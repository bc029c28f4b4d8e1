//! `lone_step`: the time of one step while nothing else happens, until it is committed.
//!
//! Owns: the moments between the bodies of a run's steps.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Fallible, GAP, Measured, ROUNDS, lock, payload};
use crate::raw::Raw;

const STEPS: usize = 1_000;

type Times = Arc<Mutex<Vec<Duration>>>;

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let mut raw = Raw::open(&bench.url).await?;
    let steps = bench.count(STEPS) / ROUNDS;
    let mut limits = Vec::new();
    let times = Times::default();
    let noted = Arc::clone(&times);
    let peer = bench.peer();
    let workflow =
        peer.register_workflow("lone-steps", move |steps| lone_steps(steps, Arc::clone(&noted)))?;
    peer.launch().await?;
    for _ in 0..ROUNDS {
        limits.extend(raw.commits(steps, GAP).await?);
        workflow.run(steps).await?;
    }
    peer.shutdown().await;
    raw.close().await?;
    let times = std::mem::take(&mut *lock(&times));
    Ok(Measured::time("lone_step", times, limits))
}

/// Each body idles, then ends. No body begins before the result of the one before is committed, so
/// the time of a step is that from the end of its body to the begin of the next one's.
async fn lone_steps(steps: usize, times: Times) -> dbos::Result<()> {
    let ended = Mutex::new(None::<Instant>);
    for _ in 0..=steps {
        let step = dbos::step("lone", || async {
            if let Some(ended) = lock(&ended).take() {
                lock(&times).push(ended.elapsed());
            }
            tokio::time::sleep(GAP).await;
            *lock(&ended) = Some(Instant::now());
            dbos::Result::Ok(payload())
        });
        step.await?;
    }
    Ok(())
}
