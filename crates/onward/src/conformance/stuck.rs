//! Stuck runs: kept from the builds that cannot go on with them, open to all others.

use super::stage::*;
use crate::store::{NewRun, Settle, Settled};
use crate::{Record, RunState, Waits};

/// A stuck run waits, and says why and under which build.
pub async fn stuck_run_says_why(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, stuck(0)).await.run;
    let run = stage.run(run).await;
    assert_eq!((run.state, run.due_at), (RunState::Waiting, None));
    assert_eq!(run.stuck_builds, [BUILD]);
    let Some(Waits::Stuck { code, detail }) = run.waits_for else { panic!("{run:?}") };
    assert_eq!((code.as_str(), detail.as_str()), ("history_mismatch", "unasked: pay"));
}

/// The build that got stuck does not get the run again, however often it sweeps.
pub async fn stuck_run_is_kept_from_its_build(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, stuck(0)).await.run;
    for _ in 0..3 {
        stage.pass(1_000);
        worker.sweep().await;
        worker.assert_nothing_to_claim().await;
    }
    assert_eq!(stage.state(run).await, RunState::Waiting);
}

/// Another build's sweep queues the run for that build, and still not for the first.
pub async fn another_build_gets_a_stuck_run(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker_of("build-2").await);
    let run = stage.settled(&old, stuck(0)).await.run;
    new.assert_nothing_to_claim().await;
    new.sweep().await;
    assert_eq!(stage.state(run).await, RunState::Queued);
    let claims = old.claim(1).await;
    assert!(claims.runs.is_empty() && !claims.more, "the first build is kept off");
    new.take(run).await;
}

/// A run that gets stuck under a second build is kept from both.
pub async fn stuck_run_remembers_every_build(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker_of("build-2").await);
    let run = stage.settled(&old, stuck(0)).await.run;
    new.sweep().await;
    let claimed = new.take_whole(run).await;
    stage.settle(claimed.lease, stuck(claimed.run.wakes)).await.unwrap();
    for worker in [&old, &new] {
        worker.sweep().await;
        worker.assert_nothing_to_claim().await;
    }
    assert_eq!(stage.run(run).await.stuck_builds, [BUILD, "build-2"]);
}

/// A sweep mends only what its worker serves.
pub async fn sweep_mends_only_what_it_serves(stage: &Stage) {
    let old = stage.worker().await;
    let run = stage.settled(&old, stuck(0)).await.run;
    let other = Worker::new(stage.store.clone(), "build-2");
    let entry = crate::store::NewWorker { workflows: vec!["refund".into()], ..other.entry() };
    stage.store.join(entry).await.unwrap();
    other.sweep().await;
    assert_eq!(stage.state(run).await, RunState::Waiting);
}

/// A stuck run that is cancelled may be settled by any build, since none of its code executes.
pub async fn cancelled_stuck_run_is_open_to_any_build(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(lease, stuck(0)).await.unwrap();
    stage.store.cancel(lease.run).await.unwrap();
    assert!(worker.take_whole(lease.run).await.run.cancel_at.is_some());
}

/// The record of a step that can be undone: without one a late run needs no worker.
fn undoable() -> Record {
    Record { undoable: true, ..done(1, "pay", 1) }
}

/// A stuck run whose deadline has passed may be ended by any build, since none of its code
/// executes but what undoes it.
pub async fn late_stuck_run_is_open_to_any_build(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(NewRun { timeout_ms: Some(500), ..new_run() }).await;
    let lease = worker.take(run).await;
    stage.store.settle(lease, Settle::new(vec![undoable()], stuck(0))).await.unwrap();
    worker.sweep().await;
    worker.assert_nothing_to_claim().await;
    stage.pass(500);
    worker.sweep().await;
    let claimed = worker.take_whole(run).await;
    assert!(claimed.run.stuck_builds.is_empty());
}

/// So may one that a mending build queued and never took.
pub async fn late_mended_run_is_open_to_any_build(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker_of("build-2").await);
    let run = stage.start(NewRun { timeout_ms: Some(500), ..new_run() }).await;
    let settle = Settle::new(vec![undoable()], stuck(0));
    stage.store.settle(old.take(run).await, settle).await.unwrap();
    new.sweep().await;
    stage.pass(500);
    old.assert_nothing_to_claim().await;
    old.sweep().await;
    old.take(run).await;
}

/// A claim passes over what it is kept off, and takes what is open in the order of claims.
pub async fn claim_takes_in_order_around_what_it_is_kept_off(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker_of("build-2").await);
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(stage.settled(&old, stuck(0)).await.run);
    }
    new.sweep().await;
    stage.pass(1);
    let low = stage.start(new_run()).await;
    let high = stage.start(NewRun { priority: 1, ..new_run() }).await;
    let mut claims = old.claim(1).await;
    assert_eq!((claims.runs.remove(0).lease.run, claims.more), (high, true));
    let claims = new.claim(3).await;
    let taken: Vec<_> = claims.runs.iter().map(|claimed| claimed.lease.run).collect();
    assert_eq!((taken, claims.more), (kept, true));
    let mut claims = old.claim(5).await;
    assert_eq!((claims.runs.remove(0).lease.run, claims.more), (low, false));
}

/// A retry opens a stuck run to the build that got stuck.
pub async fn retry_opens_a_stuck_run(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, stuck(0)).await.run;
    let retried = stage.store.retry(run).await.unwrap();
    assert_eq!(retried.state, RunState::Queued);
    assert!(retried.stuck_builds.is_empty());
    worker.take(run).await;
}

/// A wake that comes before the run is stuck queues it instead, and it is not lost.
pub async fn wake_before_stuck_queues_at_once(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    stage.store.cancel(lease.run).await.unwrap();
    assert_eq!(stage.settle(lease, stuck(0)).await.unwrap(), Settled::Queued);
    let claimed = worker.take_whole(lease.run).await;
    assert!(claimed.run.cancel_at.is_some());
    assert_eq!(claimed.run.stuck_builds, [BUILD]);
}
