//! `churn_claims`: the time of a claim after a million runs have passed through, against a fresh
//! store, and what they left behind in the table that is claimed from; then both once more, when the
//! server's own vacuum has come.
//!
//! Each of the runs is queued, claimed and finished by a worker, and nothing but that vacuum tidies up
//! after it. The fresh store is there at the same time, and the two take turns. A new worker's first
//! claims are not among the times: the first one looks through all that was left, once.
//!
//! Owns: how many runs pass through, and how many of them wait at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onward::Onward;
use tokio_postgres::Client;

use crate::bench::{Bench, Fallible, Measured};
use crate::fill::{self, ONE_STEP};
use crate::flat_claims;
use crate::place::{Made, Place, connect};

/// Runs that a worker finishes.
const CHURNED: usize = 1_000_000;

/// Runs that are started at once, and the most that wait beside those.
const STARTED: u64 = 10_000;

const CONCURRENCY: usize = 1_000;

const LOOK_EVERY: Duration = Duration::from_millis(10);

const PATIENCE: Duration = Duration::from_secs(600);

/// How long the server's own vacuum is waited for: it looks once a minute for what to do.
const VACUUM_MAX: Duration = Duration::from_secs(300);

/// A vacuum has come when so few of the dead rows are left.
const LEFT_MAX: f64 = 0.1;

/// What the server gets to add up its statistics.
const SETTLING: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let onward = place.open().await?;
    let churned = bench.count(CHURNED) as u64;
    let begun = Instant::now();
    churn(place, &onward, churned).await?;
    let took = begun.elapsed();
    let small = Place::make(&bench.kind).await?;
    let measured = compare(place, &small).await;
    small.remove().await?;
    let measured = measured?.with("churned", churned as f64);
    Ok(measured.with("runs_per_s", churned as f64 / took.as_secs_f64()))
}

/// The times of claims before and after the vacuum.
async fn compare(place: &Place, small: &Place) -> Fallible<Measured> {
    // The tables are made by who opens them first.
    small.open().await?;
    let left = Left::of(place).await?;
    let [fresh, after] = flat_claims::compare(small, place, 1).await?;
    let dead = left.dead_rows().await?;
    let measured = Measured::new(after.median, "µs", "ratio <= 1.2").against(fresh.median);
    let measured = measured.with("p99", after.p99).with("raw_p99", fresh.p99);
    let measured = measured.with("dead_rows", dead);
    let measured = measured.with("index_bytes", left.index_bytes().await?);

    let begun = Instant::now();
    while left.dead_rows().await? > dead * LEFT_MAX {
        if begun.elapsed() > VACUUM_MAX {
            return Err("the server's vacuum does not come".into());
        }
    }
    let [_, tidy] = flat_claims::compare(small, place, 1).await?;
    let measured = measured.with("tidy", tidy.median).with("tidy_p99", tidy.p99);
    Ok(measured.with("tidy_dead_rows", left.dead_rows().await?))
}

/// Queues runs from where no worker is, as the worker finishes them, and waits for the last.
async fn churn(place: &Place, onward: &Onward, runs: u64) -> Fallible<()> {
    let ended = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ended);
    let function = move |ctx, number| {
        let counted = Arc::clone(&counted);
        async move {
            let output = fill::one_step(ctx, number).await;
            counted.fetch_add(1, Ordering::Relaxed);
            output
        }
    };
    let worker = onward.worker().serve(ONE_STEP, function).concurrency(CONCURRENCY);
    let worker = worker.start().await?;
    let caller = place.open().await?;
    for first in (0..runs).step_by(STARTED as usize) {
        caller.start_many(ONE_STEP, first..runs.min(first + STARTED)).await?;
        wait_for(&ended, first).await?;
    }
    wait_for(&ended, runs).await?;
    Ok(worker.shutdown().await?)
}

/// Waits until so many functions have ended.
async fn wait_for(ended: &AtomicU64, count: u64) -> Fallible<()> {
    let begun = Instant::now();
    while ended.load(Ordering::Relaxed) < count {
        if begun.elapsed() > PATIENCE {
            return Err("the runs do not finish".into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// What runs leave in the table that is claimed from, as the server counts it.
struct Left {
    client: Client,
    schema: String,
}

impl Left {
    async fn of(place: &Place) -> Fallible<Self> {
        let Made::Schema { url, name } = &place.made else {
            return Err("only a server counts dead rows".into());
        };
        Ok(Self { client: connect(url).await?, schema: name.clone() })
    }

    async fn dead_rows(&self) -> Fallible<f64> {
        tokio::time::sleep(SETTLING).await;
        let count = "
            select n_dead_tup from pg_stat_user_tables where schemaname = $1 and relname = 'runs'";
        let dead: i64 = self.client.query_one(count, &[&self.schema]).await?.try_get(0)?;
        Ok(dead as f64)
    }

    /// Of the index that a claim reads.
    async fn index_bytes(&self) -> Fallible<f64> {
        let size = "select pg_relation_size(format('%I.runs_queued', $1::text)::regclass)";
        let bytes: i64 = self.client.query_one(size, &[&self.schema]).await?.try_get(0)?;
        Ok(bytes as f64)
    }
}
