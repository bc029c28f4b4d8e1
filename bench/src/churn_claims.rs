//! `churn_claims`: the time of a claim after a million runs have passed through, against a fresh
//! store, and the dead rows that they left behind.
//!
//! Nine tenths of the runs are copies; the last tenth is queued, claimed and finished by a worker
//! just before, and nothing but the server's own vacuum tidies up after it. The fresh store is there
//! at the same time, and the two take turns.
//!
//! Owns: how many runs pass through.

use std::time::{Duration, Instant};

use onward::{Onward, RunState};

use crate::bench::{Bench, Fallible, Measured};
use crate::fill::{self, ONE_STEP};
use crate::flat_claims::claims_us;
use crate::place::{Made, Place, connect};

/// Runs that are there as copies.
const COPIED: usize = 900_000;

/// Runs that a worker finishes.
const CHURNED: usize = 100_000;

const CONCURRENCY: usize = 1_000;

const LOOK_EVERY: Duration = Duration::from_secs(1);

const PATIENCE: Duration = Duration::from_secs(600);

/// What the server gets to add up its statistics.
const SETTLING: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let onward = place.open().await?;
    fill::finished(place, bench.count(COPIED)).await?;
    let churned = bench.count(CHURNED);
    churn(place, &onward, churned as u64).await?;
    let small = Place::make(&bench.kind).await?;
    let compared = async { claims_us(&small.open().await?, &onward).await };
    let compared = compared.await;
    small.remove().await?;
    let (fresh, after) = compared?;
    let dead = dead_rows(place).await?;
    let measured = Measured::new("churn_claims", after, "µs", "ratio <= 1.2").against(fresh);
    Ok(measured.with("churned", churned as f64).with("dead_rows", dead))
}

/// Queues runs from where no worker is, and waits until the worker has finished them.
async fn churn(place: &Place, onward: &Onward, runs: u64) -> Fallible<()> {
    let worker = onward.worker().serve(ONE_STEP, fill::one_step).concurrency(CONCURRENCY);
    let worker = worker.start().await?;
    place.open().await?.start_many(ONE_STEP, 0..runs).await?;
    let begun = Instant::now();
    loop {
        let states = onward.stats().await?.runs;
        let of = |state| states.get(&state).copied().unwrap_or(0);
        if of(RunState::Queued) + of(RunState::Running) == 0 {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err("the runs do not finish".into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(worker.shutdown().await?)
}

/// The dead rows of the table that is claimed from, as the server counts them.
async fn dead_rows(place: &Place) -> Fallible<f64> {
    let Made::Schema { url, name } = &place.made else {
        return Err("only a server counts dead rows".into());
    };
    tokio::time::sleep(SETTLING).await;
    let count = "
        select n_dead_tup from pg_stat_user_tables where schemaname = $1 and relname = 'runs'";
    let dead: i64 = connect(url).await?.query_one(count, &[name]).await?.try_get(0)?;
    Ok(dead as f64)
}
