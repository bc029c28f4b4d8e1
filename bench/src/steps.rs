//! `steps_100`, `steps_1000`: whole runs of five steps, many at once, in steps a second.
//!
//! Owns: the workflow that they are taken with, and how many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Worker, Workflow};
use tokio::task::JoinSet;

use crate::bench::{Bench, Fallible, Measured, median, payload};
use crate::child::Child;
use crate::place::{Kind, Place};
use crate::raw::Raw;
use crate::raw_rows;
use crate::role::SHARE;

const FIVE_STEPS: Workflow<usize, usize> = Workflow::named("five-steps");

pub(crate) const STEPS: usize = 5;

/// Figures of the raw limit on either side of the measure.
const RAW_FIGURES: usize = 3;

/// Clients that commit one row each at a time, whose rate a server's figure stands beside.
const ROWS_CLIENTS: usize = 16;

/// How much at once, and by how many processes: each starts and serves its share.
pub(crate) struct Load {
    measure: &'static str,
    runs: usize,
    in_flight: usize,
    processes: usize,
}

/// Every load, by the name of its measure; those of one process are taken in this one.
#[rustfmt::skip]
pub(crate) const LOADS: [Load; 6] = [
    Load { measure: "steps_100", runs: 10_000, in_flight: 100, processes: 1 },
    Load { measure: "steps_1000", runs: 60_000, in_flight: 1_000, processes: 1 },
    Load { measure: "steps_100_2", runs: 10_000, in_flight: 100, processes: 2 },
    Load { measure: "steps_100_4", runs: 10_000, in_flight: 100, processes: 4 },
    Load { measure: "steps_1000_2", runs: 60_000, in_flight: 1_000, processes: 2 },
    Load { measure: "steps_1000_4", runs: 60_000, in_flight: 1_000, processes: 4 },
];

impl Load {
    fn aim(&self, bench: &Bench) -> &'static str {
        match self.measure {
            "steps_100" => bench.aim("ratio >= 0.15 / 0.25", "report"),
            "steps_1000" => bench.aim("ratio >= 0.25 / 0.5", "ratio >= 0.2 / 0.4, of_rows_16 >= 3"),
            _ => "report",
        }
    }
}

pub(crate) async fn measure(bench: &Bench, place: &Place, name: &str) -> Fallible<Measured> {
    let load = LOADS.iter().find(|load| load.measure == name).ok_or("no such load")?;
    let raw = Raw::open(place).await?;
    let mut limits = Limits::default();
    limits.take(bench, place, &raw).await?;
    let runs = bench.count(load.runs);
    let took = match load.processes {
        1 => in_this_process(place, runs, load.in_flight).await?,
        processes => in_children(place, runs, load.in_flight, processes).await?,
    };
    limits.take(bench, place, &raw).await?;
    let rate = (runs * STEPS) as f64 / took.as_secs_f64();
    let measured = Measured::new(load.measure, rate, "steps/s", load.aim(bench));
    let measured = measured.against(median(limits.batches));
    if limits.singles.is_empty() {
        return Ok(measured);
    }
    let single = limits.singles.iter().sum::<f64>() / limits.singles.len() as f64;
    Ok(measured.with("raw_rows_16", single).with("of_rows_16", rate / single))
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

async fn in_this_process(place: &Place, runs: usize, in_flight: usize) -> Fallible<Duration> {
    let onward = place.open().await?;
    let worker = worker(&onward, in_flight).await?;
    let begun = Instant::now();
    start_all(&onward, runs, in_flight).await?;
    let took = begun.elapsed();
    worker.shutdown().await?;
    Ok(took)
}

async fn in_children(
    place: &Place,
    runs: usize,
    in_flight: usize,
    processes: usize,
) -> Fallible<Duration> {
    let mut children = Vec::new();
    for _ in 0..processes {
        let share = [runs / processes, in_flight / processes];
        children.push(Child::start(place, SHARE, &share).await?);
    }
    let begun = Instant::now();
    for child in &mut children {
        child.go().await?;
    }
    for child in &mut children {
        child.line().await?;
    }
    let took = begun.elapsed();
    for child in children {
        child.end().await?;
    }
    Ok(took)
}

/// A worker that has room for as many as are in flight.
pub(crate) async fn worker(onward: &Onward, in_flight: usize) -> Fallible<Worker> {
    let worker = onward.worker().serve(FIVE_STEPS, five_steps).concurrency(in_flight);
    Ok(worker.start().await?)
}

async fn five_steps(ctx: Ctx, number: usize) -> Result<usize, Failure> {
    for _ in 0..STEPS {
        ctx.step("step", async |_| Ok::<_, Failure>(payload())).await?;
    }
    Ok(number)
}

/// Starts runs and awaits their results, so many at once.
pub(crate) async fn start_all(onward: &Onward, runs: usize, in_flight: usize) -> Fallible<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut starters = JoinSet::new();
    for _ in 0..in_flight {
        let (onward, next) = (onward.clone(), Arc::clone(&next));
        starters.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= runs {
                    return Ok::<_, onward::Error>(());
                }
                onward.start(FIVE_STEPS, &number).await?.result().await?;
            }
        });
    }
    while let Some(ended) = starters.join_next().await {
        ended??;
    }
    Ok(())
}
