//! `takeover`: the time from the SIGKILL of a process that holds runs until another process has
//! begun the next step of each, beside the lease and a second.
//!
//! Owns: how many runs are held, and by what lease.

use std::time::Duration;

use crate::bench::{Bench, Fallible, Measured, median};
use crate::child::{Child, shared_time};
use crate::place::Place;
use crate::role::{HELD, HOLD, TAKE};

const RUNS: usize = 100;

/// The default of a worker.
const LEASE: Duration = Duration::from_secs(10);

const LEASE_QUICK: Duration = Duration::from_secs(2);

/// What a takeover may take past the lease.
const ALLOWED: Duration = Duration::from_secs(1);

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let lease = if bench.quick { LEASE_QUICK } else { LEASE };
    let lease_ms = usize::try_from(lease.as_millis())?;
    let onward = place.open().await?;
    let mut holder = Child::start(place, HOLD, &[lease_ms]).await?;
    onward.start_many(HELD, 0..RUNS).await?;
    for _ in 0..RUNS {
        holder.line().await?;
    }
    let mut taker = Child::start(place, TAKE, &[lease_ms]).await?;
    // A worker sweeps others only after it has held its own lease for as long as a lease.
    tokio::time::sleep(lease + ALLOWED).await;
    let begun = shared_time();
    holder.kill().await?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        times.push(taker.time().await?.saturating_sub(begun).as_secs_f64() * 1e3);
    }
    taker.end().await?;
    let last = times.iter().copied().fold(0.0, f64::max);
    let measured = Measured::new(last, "ms", "ratio <= 1");
    let measured = measured.against((lease + ALLOWED).as_secs_f64() * 1e3);
    Ok(measured.with("lease_ms", lease_ms as f64).with("p50", median(times)))
}
