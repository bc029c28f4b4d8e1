//! Waiting: interest counts from the call, and a change resolves it.

use std::time::Duration;

use super::stage::*;
use crate::store::{End, Topic, Waiter};

/// How long a waiter may take before the case is lost: a deadline, not a measure.
const PATIENCE: Duration = Duration::from_secs(10);

/// A waiter that was made before a settle, and polled only after it, resolves.
pub async fn waiter_made_before_a_settle_resolves(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let waiter = stage.store.wait(Topic::Run(lease.run));
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    resolves(waiter).await;
}

/// A start resolves who waits for work.
pub async fn waiter_for_work_resolves_at_a_start(stage: &Stage) {
    let waiter = stage.store.wait(Topic::Work);
    stage.start(new_run()).await;
    resolves(waiter).await;
}

/// A mark on a running run resolves who waits for work, so that its holder looks.
pub async fn waiter_for_work_resolves_at_a_mark(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let waiter = stage.store.wait(Topic::Work);
    stage.store.cancel(lease.run).await.unwrap();
    resolves(waiter).await;
}

/// A cancel that ends a run resolves who waits for it, and each of several waiters.
pub async fn every_waiter_resolves_at_a_cancel(stage: &Stage) {
    let run = stage.start(new_run()).await;
    let waiters = [stage.store.wait(Topic::Run(run)), stage.store.wait(Topic::Run(run))];
    stage.store.cancel(run).await.unwrap();
    for waiter in waiters {
        resolves(waiter).await;
    }
}

/// A retry resolves who waits for work.
pub async fn waiter_for_work_resolves_at_a_retry(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, failed_at("pay")).await.run;
    let waiter = stage.store.wait(Topic::Work);
    stage.store.retry(run).await.unwrap();
    resolves(waiter).await;
}

/// A sweep that takes runs back resolves who waits for work.
pub async fn waiter_for_work_resolves_at_a_takeover(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    stage.running(&old).await;
    let waiter = stage.store.wait(Topic::Work);
    stage.lose(&old, &live).await;
    resolves(waiter).await;
}

/// The end of a run resolves who waits for work, when another was queued behind it.
pub async fn waiter_for_work_resolves_when_a_run_behind_is_let_go(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, crate::OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    stage.start(keyed("order-1", 2, crate::OnConflict::Replace)).await;
    let waiter = stage.store.wait(Topic::Work);
    stage.settle(lease, End::Cancelled).await.unwrap();
    resolves(waiter).await;
}

async fn resolves(waiter: Waiter) {
    let resolved = tokio::time::timeout(PATIENCE, waiter).await;
    assert!(resolved.is_ok(), "the waiter never resolved");
}
