//! `churn_claims`: the time of a claim after a million runs have passed through, against a fresh
//! store, and what they left behind in the table that is claimed from.
//!
//! Each of the runs is queued, claimed and finished by a worker, and nothing but the server's own
//! vacuum tidies up after it. The fresh store is there at the same time, and the two take turns.
//!
//! Owns: how many runs pass through, and how many of them wait at once.

use std::time::{Duration, Instant};

use onward::{Onward, RunState};

use crate::bench::{Bench, Fallible, Measured};
use crate::fill::{self, ONE_STEP};
use crate::flat_claims;
use crate::place::{Made, Place, connect};

/// Runs that a worker finishes.
const CHURNED: usize = 1_000_000;

/// Runs that are started at once, and the most that are queued beside those.
const STARTED: u64 = 10_000;

const CONCURRENCY: usize = 1_000;

const LOOK_EVERY: Duration = Duration::from_millis(500);

const PATIENCE: Duration = Duration::from_secs(600);

/// What the server gets to add up its statistics.
const SETTLING: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let onward = place.open().await?;
    let churned = bench.count(CHURNED) as u64;
    let begun = Instant::now();
    churn(place, &onward, churned).await?;
    let took = begun.elapsed();
    let left = Left::read(place).await?;
    let small = Place::make(&bench.kind).await?;
    let compared = async {
        // The tables are made by who opens them first.
        small.open().await?;
        flat_claims::compare(&small, place, 1).await
    };
    let compared = compared.await;
    small.remove().await?;
    let [fresh, after] = compared?;
    let measured = Measured::new(after.median, "µs", "ratio <= 1.2").against(fresh.median);
    let measured = measured.with("p99", after.p99).with("raw_p99", fresh.p99);
    let measured = measured.with("churned", churned as f64);
    let measured = measured.with("runs_per_s", churned as f64 / took.as_secs_f64());
    Ok(left.beside(measured))
}

/// Queues runs from where no worker is, as the worker finishes them, and waits for the last.
async fn churn(place: &Place, onward: &Onward, runs: u64) -> Fallible<()> {
    let worker = onward.worker().serve(ONE_STEP, fill::one_step).concurrency(CONCURRENCY);
    let worker = worker.start().await?;
    let caller = place.open().await?;
    for first in (0..runs).step_by(STARTED as usize) {
        caller.start_many(ONE_STEP, first..runs.min(first + STARTED)).await?;
        wait_until(onward, |queued, _| queued <= STARTED).await?;
    }
    wait_until(onward, |queued, running| queued + running == 0).await?;
    Ok(worker.shutdown().await?)
}

/// Waits until as few runs are queued and running as somebody wants.
async fn wait_until(onward: &Onward, few: impl Fn(u64, u64) -> bool) -> Fallible<()> {
    let begun = Instant::now();
    loop {
        let states = onward.stats().await?.runs;
        let of = |state| states.get(&state).copied().unwrap_or(0);
        if few(of(RunState::Queued), of(RunState::Running)) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("the runs do not finish".into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What runs leave in the table that is claimed from, as the server counts it.
struct Left {
    dead_rows: i64,
    table_bytes: i64,
    /// Of the index that a claim reads.
    index_bytes: i64,
}

impl Left {
    async fn read(place: &Place) -> Fallible<Self> {
        let Made::Schema { url, name } = &place.made else {
            return Err("only a server counts dead rows".into());
        };
        tokio::time::sleep(SETTLING).await;
        let count = "
            select n_dead_tup, pg_relation_size(relid),
                pg_relation_size(format('%I.runs_queued', schemaname)::regclass)
            from pg_stat_user_tables where schemaname = $1 and relname = 'runs'";
        let row = connect(url).await?.query_one(count, &[name]).await?;
        Ok(Self {
            dead_rows: row.try_get(0)?,
            table_bytes: row.try_get(1)?,
            index_bytes: row.try_get(2)?,
        })
    }

    fn beside(&self, measured: Measured) -> Measured {
        let measured = measured.with("dead_rows", self.dead_rows as f64);
        let measured = measured.with("table_bytes", self.table_bytes as f64);
        measured.with("index_bytes", self.index_bytes as f64)
    }
}
