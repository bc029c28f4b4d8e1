//! `Replace`: the new run takes the key, and starts when the old one has ended.

use super::stage::*;
use crate::store::{End, Lease, NewRun, StartAt, StartedHow};
use crate::{OnConflict, RunId, RunState, Waits};

/// Replacing a queued run ends it at once, and the new one is queued.
pub async fn replacing_a_queued_run_ends_it(stage: &Stage) {
    let old = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let new = replace(stage, old).await;
    assert_eq!(stage.state(old).await, RunState::Cancelled);
    assert_eq!(stage.state(new).await, RunState::Queued);
    assert_eq!(stage.by_key("order-1").await, Some(new));
    stage.worker().await.take(new).await;
}

/// Replacing a running run marks it; the new one starts when its holder settled it.
pub async fn replacing_a_running_run_waits_for_its_end(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = running_with_key(stage, &worker).await;
    let new = replace(stage, lease.run).await;
    assert_waits_behind(stage, new, lease.run).await;
    let claims = worker.claim(10).await;
    assert!(claims.runs.is_empty());
    assert_eq!(claims.marks.len(), 1, "the holder sees the mark");
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert_eq!(stage.state(lease.run).await, RunState::Cancelled);
    worker.take(new).await;
}

/// A replaced run that ends in another way than cancelled lets the new one go, too.
pub async fn replaced_run_that_fails_lets_the_new_one_go(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = running_with_key(stage, &worker).await;
    let new = replace(stage, lease.run).await;
    stage.settle(lease, failed_at("pay")).await.unwrap();
    worker.take(new).await;
}

/// Replacing a waiting run with records queues it with the mark, so that it can undo.
pub async fn replacing_a_waiting_run_waits_for_its_end(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = running_with_key(stage, &worker).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(lease, parked(0)).await.unwrap();
    let new = replace(stage, lease.run).await;
    assert_waits_behind(stage, new, lease.run).await;
    let again = worker.take_whole(lease.run).await;
    assert!(again.run.cancel_at.is_some());
    assert_eq!(steps(&again.history), [(1, "pay")]);
    stage.settle(again.lease, End::Cancelled).await.unwrap();
    worker.take(new).await;
}

/// Replacing a run that is itself behind another takes its place there.
pub async fn replacing_a_run_behind_takes_its_place(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = running_with_key(stage, &worker).await;
    let second = replace(stage, lease.run).await;
    let third = replace(stage, second).await;
    assert_eq!(stage.state(second).await, RunState::Cancelled);
    assert_waits_behind(stage, third, lease.run).await;
    worker.assert_nothing_to_claim().await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    worker.take(third).await;
}

/// Replacing a run that has ended only takes its key.
pub async fn replacing_a_finished_run_starts_at_once(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = running_with_key(stage, &worker).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    let ended = stage.run(lease.run).await;
    let new = replace(stage, lease.run).await;
    assert_eq!(stage.run(lease.run).await, ended, "the old run is left as it was");
    assert_eq!(stage.by_key("order-1").await, Some(new));
    worker.take(new).await;
}

/// A replacing run with a delay waits for the later of the two.
pub async fn replacing_run_keeps_its_delay(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = running_with_key(stage, &worker).await;
    let new = keyed("order-1", 2, OnConflict::Replace);
    let new = stage.start(NewRun { start_at: StartAt::After(1_000), ..new }).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    let run = stage.run(new).await;
    assert_eq!((run.state, run.due_at), (RunState::Waiting, Some(stage.in_ms(1_000))));
    assert_eq!(run.notes.start_at, run.due_at);
    worker.assert_nothing_to_claim().await;
    stage.pass(1_000);
    worker.take(new).await;
}

/// A replacing start that is repeated replaces nothing further.
pub async fn replacing_start_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = running_with_key(stage, &worker).await;
    let new = keyed("order-1", 2, OnConflict::Replace);
    stage.start(new.clone()).await;
    let before = stage.snapshot().await;
    stage.pass(5);
    assert_eq!(stage.try_start(new.clone()).await.unwrap().run, new.id);
    stage.assert_unchanged(&before).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    let before = stage.snapshot().await;
    assert_eq!(stage.try_start(new.clone()).await.unwrap().run, new.id);
    stage.assert_unchanged(&before).await;
}

/// A run that is taken from a lost worker keeps the one behind it waiting.
pub async fn replacing_run_waits_through_a_loss(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = running_with_key(stage, &old).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    let new = replace(stage, lease.run).await;
    stage.lose(&old, &live).await;
    assert_waits_behind(stage, new, lease.run).await;
    let again = live.take(lease.run).await;
    stage.settle(again, End::Cancelled).await.unwrap();
    live.take(new).await;
}

async fn running_with_key(stage: &Stage, worker: &Worker) -> Lease {
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    worker.take(run).await
}

async fn replace(stage: &Stage, old: RunId) -> RunId {
    let started = stage.try_start(keyed("order-1", 2, OnConflict::Replace)).await.unwrap();
    assert_eq!(started.how, StartedHow::Replaced(old));
    started.run
}

async fn assert_waits_behind(stage: &Stage, new: RunId, old: RunId) {
    let run = stage.run(new).await;
    let behind = matches!(run.waits_for, Some(Waits::Behind { run, .. }) if run == old);
    assert!(run.state == RunState::Waiting && behind, "{run:?} waits behind {old}");
    assert_eq!(stage.run(old).await.successor, Some(new));
    assert_eq!(stage.by_key("order-1").await, Some(new));
}
