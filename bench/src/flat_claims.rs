//! `flat_claims`: the time of a claim beside a million finished runs, against a thousand.
//!
//! A thousand runs are finished by a worker; the others are copies of their rows. The two stores are
//! there at once and take turns, a few claims each: filling one is a minute of heavy writing, and what
//! a claim takes is mostly its commit, so that one after the other would compare the disk's moods.
//!
//! Owns: how a claim is timed.

use std::time::{Duration, Instant};

use onward::store::{Claim, ClaimMode, NewWorker};
use onward::{Onward, WorkerId};

use crate::bench::{Bench, Fallible, Measured, median_us, percentile_us};
use crate::fill::{self, FEW, ONE_STEP};
use crate::place::Place;
use crate::role;
use crate::share::Share;
use crate::team::Team;

/// Runs that are finished in the end.
const MANY: usize = 1_000_000;

/// Claims of each process in one turn.
const CLAIMS_IN_TURN: usize = 10;

/// Turns that are timed.
const TURNS: usize = 100;

/// Turns that are not timed: they make a session's plans, and write pages whole that were not
/// written since a checkpoint.
const TURNS_BEFORE: usize = 5;

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    fill::finished(place, bench.count(MANY)).await?;
    let small = Place::make(&bench.kind).await?;
    let compared = async {
        fill::finished(&small, FEW).await?;
        compare(&small, place, processes).await
    };
    let compared = compared.await;
    small.remove().await?;
    let [few, many] = compared?;
    let aim = bench.aim("ratio <= 1.5", "ratio <= 1.2");
    let measured = Measured::new(many.median, "µs", aim).against(few.median);
    Ok(measured.with("p99", many.p99).with("raw_p99", few.p99))
}

/// How long a claim of one run takes, in microseconds.
pub(crate) struct ClaimTimes {
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl ClaimTimes {
    fn of(times: Vec<Duration>) -> Self {
        Self { p99: percentile_us(times.clone(), 99), median: median_us(times) }
    }
}

/// The times of claims in two stores, which take turns.
pub(crate) async fn compare(
    one: &Place,
    other: &Place,
    processes: usize,
) -> Fallible<[ClaimTimes; 2]> {
    let mut one = Team::start(one, role::CLAIMS, processes, 1).await?;
    let mut other = Team::start(other, role::CLAIMS, processes, 1).await?;
    for turn in 0..TURNS_BEFORE + TURNS {
        if turn == TURNS_BEFORE {
            one.times().await?;
            other.times().await?;
        }
        one.work(CLAIMS_IN_TURN).await?;
        other.work(CLAIMS_IN_TURN).await?;
    }
    let times = [ClaimTimes::of(one.times().await?), ClaimTimes::of(other.times().await?)];
    one.end().await?;
    other.end().await?;
    Ok(times)
}

/// A worker that claims queued runs one by one.
pub(crate) struct Claims {
    onward: Onward,
    worker: WorkerId,
    ticket: i64,
    times: Vec<Duration>,
}

impl Share for Claims {
    async fn begin(onward: Onward, _: usize) -> Fallible<Self> {
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
        let claims = (TURNS_BEFORE + TURNS) * CLAIMS_IN_TURN;
        onward.start_many(ONE_STEP, 0..claims as u64).await?;
        Ok(Self { onward, worker, ticket: 0, times: Vec::new() })
    }

    async fn work(&mut self, claims: usize) -> Fallible<()> {
        for _ in 0..claims {
            self.claim().await?;
        }
        Ok(())
    }

    fn times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.times)
    }

    async fn end(self) -> Fallible<()> {
        Ok(self.onward.store().leave(self.worker).await?)
    }
}

impl Claims {
    async fn claim(&mut self) -> Fallible<()> {
        self.ticket += 1;
        let claim = Claim {
            worker: self.worker,
            ticket: self.ticket,
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
}
