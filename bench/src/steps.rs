//! `steps_100`, `steps_1000`, `keyed_1000`: whole runs of five steps, many at once, in steps a second.
//!
//! Owns: the workflow that they are taken with, and how many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, RunId, Worker, Workflow};
use tokio::task::JoinSet;

use crate::bench::{Bench, Fallible, Measured, median, payload};
use crate::place::{Kind, Place};
use crate::raw::Raw;
use crate::raw_rows;
use crate::role;
use crate::share::Share;
use crate::team::Team;

const FIVE_STEPS: Workflow<usize, usize> = Workflow::named("five-steps");

pub(crate) const STEPS: usize = 5;

/// Figures of the raw limit on either side of the measure.
const RAW_FIGURES: usize = 3;

/// Clients that commit one row each at a time, whose rate a server's figure stands beside.
const ROWS_CLIENTS: usize = 16;

/// How much at once: each process starts and serves its share.
pub(crate) struct Load {
    runs: usize,
    in_flight: usize,
    /// Who starts the runs: [`Steps`] with keys, or without.
    role: &'static str,
    /// On SQLite, and on Postgres.
    aims: [&'static str; 2],
}

pub(crate) const HUNDRED: Load = Load {
    runs: 10_000,
    in_flight: 100,
    role: role::STEPS,
    aims: ["ratio >= 0.15 / 0.25", "report"],
};

pub(crate) const THOUSAND: Load = Load {
    runs: 60_000,
    in_flight: 1_000,
    role: role::STEPS,
    aims: ["ratio >= 0.25 / 0.5", "ratio >= 0.2 / 0.4, of_rows_16 >= 3"],
};

/// As [`THOUSAND`], each run with a key of its own.
pub(crate) const KEYED: Load = Load { role: role::KEYED_STEPS, aims: ["report"; 2], ..THOUSAND };

pub(crate) async fn measure(
    bench: &Bench,
    place: &Place,
    processes: usize,
    load: Load,
) -> Fallible<Measured> {
    let raw = Raw::open(place, 1).await?;
    let mut limits = Limits::default();
    limits.take(bench, place, &raw).await?;
    let mut team = Team::start(place, load.role, processes, load.in_flight / processes).await?;
    let each = bench.count(load.runs) / processes;
    let took = team.work(each).await?;
    team.end().await?;
    limits.take(bench, place, &raw).await?;
    let rate = rate(each * processes, took);
    let [sqlite, postgres] = load.aims;
    let measured = Measured::new(rate, "steps/s", bench.aim(sqlite, postgres));
    let measured = measured.against(median(limits.batches));
    if limits.singles.is_empty() {
        return Ok(measured);
    }
    let single = limits.singles.iter().sum::<f64>() / limits.singles.len() as f64;
    Ok(measured.with("raw_rows_16", single).with("of_rows_16", rate / single))
}

/// Steps a second of so many runs.
pub(crate) fn rate(runs: usize, took: Duration) -> f64 {
    (runs * STEPS) as f64 / took.as_secs_f64()
}

/// The raw limits, taken on either side of the measure: these machines change their speed.
#[derive(Default)]
struct Limits {
    /// Rows a second, a hundred in a commit.
    batches: Vec<f64>,
    /// Rows a second, one in a commit, by so many clients of a server.
    singles: Vec<f64>,
}

impl Limits {
    async fn take(&mut self, bench: &Bench, place: &Place, raw: &Raw) -> Fallible<()> {
        for _ in 0..RAW_FIGURES {
            self.batches.push(raw.rows_per_second().await?);
        }
        if !matches!(bench.kind, Kind::Sqlite { .. }) {
            self.singles.push(raw_rows::single(bench, place, ROWS_CLIENTS).await?);
        }
        Ok(())
    }
}

/// A worker that has room for as many as are in flight, and the callers of its runs.
pub(crate) struct Steps<const KEYED: bool> {
    onward: Onward,
    worker: Worker,
    in_flight: usize,
}

impl<const KEYED: bool> Share for Steps<KEYED> {
    async fn begin(onward: Onward, in_flight: usize) -> Fallible<Self> {
        let worker = onward.worker().serve(FIVE_STEPS, five_steps).concurrency(in_flight);
        let worker = worker.start().await?;
        Ok(Self { onward, worker, in_flight })
    }

    /// Starts runs and awaits their results, so many at once.
    async fn work(&mut self, runs: usize) -> Fallible<()> {
        let next = Arc::new(AtomicUsize::new(0));
        // No other process has these keys.
        let part = RunId::new();
        let mut starters = JoinSet::new();
        for _ in 0..self.in_flight {
            let (onward, next) = (self.onward.clone(), Arc::clone(&next));
            starters.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return Ok::<_, onward::Error>(());
                    }
                    let mut start = onward.start(FIVE_STEPS, &number);
                    if KEYED {
                        start = start.key(format!("{part}-{number}"));
                    }
                    start.await?.result().await?;
                }
            });
        }
        while let Some(ended) = starters.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn end(self) -> Fallible<()> {
        Ok(self.worker.shutdown().await?)
    }
}

async fn five_steps(ctx: Ctx, number: usize) -> Result<usize, Failure> {
    for _ in 0..STEPS {
        ctx.step("step", async |_| Ok::<_, Failure>(payload())).await?;
    }
    Ok(number)
}
