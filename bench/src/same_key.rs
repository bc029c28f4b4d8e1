//! `same_key`: two thousand starts with one key from fifty callers, in calls a second; where several
//! processes take it, so many in all.
//!
//! Owns: the callers, and that they all get the same run.

use onward::{Ctx, Failure, Onward, RunId, Worker, Workflow};
use tokio::task::JoinSet;

use crate::bench::{Bench, Fallible, Measured, payload};
use crate::place::Place;
use crate::role;
use crate::share::Share;
use crate::team::Team;

const ONE_STEP: Workflow<u64, String> = Workflow::named("one-step");

const CALLERS: usize = 50;

const CALLS: usize = 2_000;

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    let onward = place.open().await?;
    let runs = async || Ok::<u64, onward::Error>(onward.stats().await?.runs.values().sum());
    let before = runs().await?;
    let callers = CALLERS / processes;
    let mut team = Team::start(place, role::CALLERS, processes, callers).await?;
    let calls = bench.count(CALLS) / CALLERS;
    let took = team.work(calls).await?;
    team.end().await?;
    let started = runs().await? - before;
    if started != 1 {
        return Err(format!("one key gave {started} runs").into());
    }
    let calls = processes * callers * calls;
    Ok(Measured::new(calls as f64 / took.as_secs_f64(), "calls/s", "report"))
}

/// Callers with one key, and a worker.
pub(crate) struct Callers {
    onward: Onward,
    worker: Worker,
    callers: usize,
}

impl Share for Callers {
    async fn begin(onward: Onward, callers: usize) -> Fallible<Self> {
        let worker = onward.worker().serve(ONE_STEP, one_step).start().await?;
        Ok(Self { onward, worker, callers })
    }

    /// Lets every caller call so often.
    async fn work(&mut self, calls: usize) -> Fallible<()> {
        let mut callers = JoinSet::new();
        for _ in 0..self.callers {
            callers.spawn(call(self.onward.clone(), calls));
        }
        let mut runs: Vec<RunId> = Vec::new();
        while let Some(called) = callers.join_next().await {
            runs.extend(called??);
        }
        runs.dedup();
        if runs.len() == 1 { Ok(()) } else { Err("one key gave more than one run".into()) }
    }

    async fn end(self) -> Fallible<()> {
        Ok(self.worker.shutdown().await?)
    }
}

async fn call(onward: Onward, calls: usize) -> Result<Vec<RunId>, onward::Error> {
    let mut runs = Vec::with_capacity(calls);
    for _ in 0..calls {
        runs.push(onward.start(ONE_STEP, &1).key("the key").await?.id());
    }
    Ok(runs)
}

async fn one_step(ctx: Ctx, _: u64) -> Result<String, Failure> {
    ctx.step("step", async |_| Ok::<_, Failure>(payload())).await
}
