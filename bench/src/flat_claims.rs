//! `flat_claims`: the time of a claim beside a million finished runs, against a thousand.
//!
//! A thousand runs are finished by a worker; the others are copies of their rows.
//!
//! Owns: how a claim is timed.

use std::time::Instant;

use onward::store::{Claim, ClaimMode, NewWorker};
use onward::{Onward, WorkerId};

use crate::bench::{Bench, Fallible, Measured, median_us};
use crate::fill::{self, FEW, ONE_STEP};
use crate::place::Place;

/// Runs that are finished in the end.
const MANY: usize = 1_000_000;

const CLAIMS: u64 = 300;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let onward = place.open().await?;
    fill::finished(place, FEW).await?;
    let few = claim_us(&onward).await?;
    drop(onward);
    fill::finished(place, bench.count(MANY)).await?;
    let many = claim_us(&place.open().await?).await?;
    let aim = bench.aim("ratio <= 1.5", "ratio <= 1.2");
    Ok(Measured::new("flat_claims", many, "µs", aim).against(few))
}

/// The median time of a claim of one run.
pub(crate) async fn claim_us(onward: &Onward) -> Fallible<f64> {
    let worker = WorkerId::new();
    let (queues, workflows) = (vec!["default".to_owned()], vec![ONE_STEP.name().to_owned()]);
    let joining = NewWorker {
        id: worker,
        build: "bench".to_owned(),
        place: "bench".to_owned(),
        queues: queues.clone(),
        workflows: workflows.clone(),
        lease_ms: 600_000,
    };
    onward.store().join(joining).await?;
    onward.start_many(ONE_STEP, 0..CLAIMS).await?;
    let mut times = Vec::new();
    for ticket in 1..=i64::try_from(CLAIMS)? {
        let claim = Claim {
            worker,
            ticket,
            build: "bench".to_owned(),
            queues: queues.clone(),
            workflows: workflows.clone(),
            limit: 1,
            mode: ClaimMode::Ordinary,
        };
        let begun = Instant::now();
        let claims = onward.store().claim(claim).await?;
        times.push(begun.elapsed());
        if claims.runs.len() != 1 {
            return Err("a claim found no run".into());
        }
    }
    onward.store().leave(worker).await?;
    // What was claimed is out of the way of the claims that are compared with these.
    let page = onward::Query { limit: CLAIMS as usize, ..onward::Query::default() };
    for run in onward.list(page).await?.runs {
        onward.run(run.id).cancel().await?;
    }
    Ok(median_us(times))
}
