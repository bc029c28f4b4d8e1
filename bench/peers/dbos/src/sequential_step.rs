//! `sequential_step`: two hundred steps of one run, one after the other, per step.
//!
//! Owns: the moments at which the bodies of a run's steps begin.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Fallible, Measured, lock, payload};
use crate::raw::Raw;

const STEPS: usize = 200;

/// Runs, each after as many commits of the raw limit as it has steps.
const RUNS: usize = 15;

type Begun = Arc<Mutex<Vec<Instant>>>;

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let mut raw = Raw::open(&bench.url).await?;
    let (mut limits, mut times) = (Vec::new(), Vec::new());
    let begun = Begun::default();
    let noted = Arc::clone(&begun);
    let peer = bench.peer();
    let workflow =
        peer.register_workflow("many-steps", move |steps| many_steps(steps, Arc::clone(&noted)))?;
    peer.launch().await?;
    for _ in 0..bench.count(RUNS) {
        limits.push(mean(&raw.commits(STEPS, Duration::ZERO).await?));
        workflow.run(STEPS + 1).await?;
        times.push(mean(&between(&std::mem::take(&mut *lock(&begun)))));
    }
    peer.shutdown().await;
    raw.close().await?;
    Ok(Measured::time("sequential_step", times, limits))
}

async fn many_steps(steps: usize, begun: Begun) -> dbos::Result<()> {
    for _ in 0..steps {
        let step = dbos::step("step", || async {
            lock(&begun).push(Instant::now());
            dbos::Result::Ok(payload())
        });
        step.await?;
    }
    Ok(())
}

/// From the begin of each body to the begin of the next one's, by when its result is committed.
fn between(begun: &[Instant]) -> Vec<Duration> {
    begun.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn mean(times: &[Duration]) -> Duration {
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX);
    times.iter().sum::<Duration>() / count.max(1)
}
