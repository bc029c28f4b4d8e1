//! `flat_claims`: the time of a claim beside a million finished runs, against a thousand.
//!
//! A thousand runs are finished by a worker; the others are copies of their rows. The two stores are
//! there at once and take turns, claim by claim: filling one is a minute of heavy writing, and what a
//! claim takes is mostly its commit, so that one after the other would compare the disk's moods.
//!
//! Owns: how a claim is timed.

use std::time::{Duration, Instant};

use onward::store::{Claim, ClaimMode, NewWorker};
use onward::{Onward, WorkerId};

use crate::bench::{Bench, Fallible, Measured, median_us};
use crate::fill::{self, FEW, ONE_STEP};
use crate::place::Place;

/// Runs that are finished in the end.
const MANY: usize = 1_000_000;

const CLAIMS: u64 = 300;

/// Claims that are not timed: they make a session's plans, and write pages whole that were not
/// written since a checkpoint.
const CLAIMS_BEFORE: u64 = 50;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    fill::finished(place, bench.count(MANY)).await?;
    let small = Place::make(&bench.kind).await?;
    let compared = async {
        fill::finished(&small, FEW).await?;
        claims_us(&small.open().await?, &place.open().await?).await
    };
    let compared = compared.await;
    small.remove().await?;
    let (few, many) = compared?;
    let aim = bench.aim("ratio <= 1.5", "ratio <= 1.2");
    Ok(Measured::new("flat_claims", many, "µs", aim).against(few))
}

/// The median times of a claim of one run in two stores, which take turns.
pub(crate) async fn claims_us(one: &Onward, other: &Onward) -> Fallible<(f64, f64)> {
    let (mut one, mut other) = (Claiming::begin(one).await?, Claiming::begin(other).await?);
    for _ in 0..CLAIMS_BEFORE + CLAIMS {
        one.claim().await?;
        other.claim().await?;
    }
    Ok((one.end().await?, other.end().await?))
}

/// A worker that claims queued runs one by one.
struct Claiming<'a> {
    onward: &'a Onward,
    worker: WorkerId,
    times: Vec<Duration>,
}

impl<'a> Claiming<'a> {
    async fn begin(onward: &'a Onward) -> Fallible<Self> {
        let worker = WorkerId::new();
        let joining = NewWorker {
            id: worker,
            build: "bench".to_owned(),
            place: "bench".to_owned(),
            queues: vec!["default".to_owned()],
            workflows: vec![ONE_STEP.name().to_owned()],
            lease_ms: 600_000,
            concurrency: 1,
        };
        onward.store().join(joining).await?;
        onward.start_many(ONE_STEP, 0..CLAIMS_BEFORE + CLAIMS).await?;
        Ok(Self { onward, worker, times: Vec::new() })
    }

    async fn claim(&mut self) -> Fallible<()> {
        let claim = Claim {
            worker: self.worker,
            ticket: i64::try_from(self.times.len())? + 1,
            build: "bench".to_owned(),
            queues: vec!["default".to_owned()],
            workflows: vec![ONE_STEP.name().to_owned()],
            limit: 1,
            mode: ClaimMode::Ordinary,
        };
        let begun = Instant::now();
        let claims = self.onward.store().claim(claim).await?;
        self.times.push(begun.elapsed());
        if claims.runs.len() != 1 {
            return Err("a claim found no run".into());
        }
        Ok(())
    }

    async fn end(self) -> Fallible<f64> {
        self.onward.store().leave(self.worker).await?;
        Ok(median_us(self.times.into_iter().skip(CLAIMS_BEFORE as usize).collect()))
    }
}
