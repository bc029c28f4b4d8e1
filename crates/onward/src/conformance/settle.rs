//! Settling: each way to end an attempt, repeated, stale and late.

use super::stage::*;
use crate::limits::MISMATCH_LISTED_MAX;
use crate::store::{End, Lease, Settle, Settled};
use crate::{RunId, RunState};

/// A completed run shows its output, and is held by nobody.
pub async fn completed_run_shows_its_output(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.pass(5);
    let settle = Settle::new(vec![done(1, "ocr", 1)], End::Completed(json(7)));
    assert_eq!(stage.store.settle(lease, settle).await.unwrap(), Settled::AsSaid);
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.output), (RunState::Completed, Some(json(7))));
    assert_eq!((run.worker, run.due_at, run.finished_at), (None, None, Some(stage.now())));
    assert_eq!(steps(&stage.history(lease.run).await), [(1, "ocr")]);
    worker.assert_nothing_to_claim().await;
}

/// A failed run shows what it failed with.
pub async fn failed_run_shows_its_failure(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.settled(&worker, failed_at("pay")).await;
    let run = stage.run(lease.run).await;
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(run.failure.unwrap().message, "declined");
    assert_eq!(run.finished_at, Some(stage.now()));
}

/// A released run is queued at once.
pub async fn released_run_is_queued(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.settled(&worker, End::Released).await;
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.worker), (RunState::Queued, None));
    worker.take(lease.run).await;
}

/// A settle to completed, repeated, changes nothing.
pub async fn settle_completed_twice(stage: &Stage) {
    settle_twice(stage, End::Completed(json(1))).await;
}

/// A settle to failed, repeated, changes nothing.
pub async fn settle_failed_twice(stage: &Stage) {
    settle_twice(stage, failed_at("pay")).await;
}

/// A settle to cancelled, repeated, changes nothing.
pub async fn settle_cancelled_twice(stage: &Stage) {
    settle_twice(stage, End::Cancelled).await;
}

/// A settle that goes on as another run, repeated, starts no second one.
pub async fn settle_continued_twice(stage: &Stage) {
    settle_twice(
        stage,
        End::Continued { run: RunId::new(), input: json(2), undelivered: Vec::new() },
    )
    .await;
}

/// A settle to waiting, repeated, changes nothing.
pub async fn settle_parked_twice(stage: &Stage) {
    settle_twice(stage, parked_until(Some(stage.in_ms(60_000)), 0)).await;
}

/// A settle that found the run woken, repeated, gives the same answer.
pub async fn settle_parked_when_woken_twice(stage: &Stage) {
    settle_twice(stage, parked(99)).await;
}

/// A settle to stuck, repeated, changes nothing.
pub async fn settle_stuck_twice(stage: &Stage) {
    settle_twice(stage, stuck(0)).await;
}

/// A release, repeated, changes nothing.
pub async fn settle_released_twice(stage: &Stage) {
    settle_twice(stage, End::Released).await;
}

async fn settle_twice(stage: &Stage, end: End) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let settle = Settle::new(vec![done(1, "ocr", 1)], end);
    let first = stage.store.settle(lease, settle.clone()).await.unwrap();
    let before = stage.snapshot().await;
    stage.pass(5);
    assert_eq!(stage.store.settle(lease, settle).await.unwrap(), first);
    stage.assert_unchanged(&before).await;
}

/// A worker that was marked lost cannot complete.
pub async fn settle_completed_with_stale_lease(stage: &Stage) {
    settle_stale(stage, End::Completed(json(1))).await;
}

/// A worker that was marked lost cannot fail a run.
pub async fn settle_failed_with_stale_lease(stage: &Stage) {
    settle_stale(stage, failed_at("pay")).await;
}

/// A worker that was marked lost cannot settle a cancel.
pub async fn settle_cancelled_with_stale_lease(stage: &Stage) {
    settle_stale(stage, End::Cancelled).await;
}

/// A worker that was marked lost cannot go on as another run.
pub async fn settle_continued_with_stale_lease(stage: &Stage) {
    settle_stale(
        stage,
        End::Continued { run: RunId::new(), input: json(2), undelivered: Vec::new() },
    )
    .await;
}

/// A worker that was marked lost cannot park.
pub async fn settle_parked_with_stale_lease(stage: &Stage) {
    settle_stale(stage, parked(0)).await;
}

/// A worker that was marked lost cannot make a run stuck.
pub async fn settle_stuck_with_stale_lease(stage: &Stage) {
    settle_stale(stage, stuck(0)).await;
}

/// A worker that was marked lost cannot release.
pub async fn settle_released_with_stale_lease(stage: &Stage) {
    settle_stale(stage, End::Released).await;
}

async fn settle_stale(stage: &Stage, end: End) {
    let (lease, new) = stage.stale().await;
    let settle = Settle::new(vec![done(1, "ocr", 1)], end);
    let before = stage.snapshot().await;
    assert_lost(stage.store.settle(lease, settle.clone()).await);
    stage.assert_unchanged(&before).await;
    let held = new.take(lease.run).await;
    let before = stage.snapshot().await;
    assert_lost(stage.store.settle(lease, settle.clone()).await);
    stage.assert_unchanged(&before).await;
    stage.settle(held, End::Completed(json(1))).await.unwrap();
    let before = stage.snapshot().await;
    assert_lost(stage.store.settle(lease, settle).await);
    stage.assert_unchanged(&before).await;
}

/// A worker that holds the run again cannot settle its earlier, lost attempt.
pub async fn settle_under_another_attempt_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let before = stage.snapshot().await;
    let wrong = Lease { attempt: lease.attempt + 1, ..lease };
    assert_lost(stage.settle(wrong, End::Completed(json(1))).await);
    let other = stage.worker().await;
    let wrong = Lease { worker: other.id, ..lease };
    assert_lost(stage.settle(wrong, End::Completed(json(1))).await);
    assert_eq!(stage.state(lease.run).await, before.runs[0].state);
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
}

/// A late repeat of a park is known after the run was claimed, and even settled, again.
pub async fn late_repeat_of_a_park_is_known(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let park = parked_until(Some(stage.in_ms(10)), 0);
    let first = stage.settle(lease, park.clone()).await.unwrap();
    stage.pass(10);
    let again = worker.take(lease.run).await;
    let before = stage.snapshot().await;
    assert_eq!(stage.settle(lease, park.clone()).await.unwrap(), first);
    stage.assert_unchanged(&before).await;
    stage.settle(again, End::Completed(json(1))).await.unwrap();
    let before = stage.snapshot().await;
    assert_eq!(stage.settle(lease, park).await.unwrap(), first);
    stage.assert_unchanged(&before).await;
}

/// A late repeat of a failed settle is known after the run was retried and claimed again.
pub async fn late_repeat_of_a_failed_settle_is_known(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    let settle = Settle::new(vec![failed(1, "pay")], failed_at("pay"));
    stage.store.settle(lease, settle.clone()).await.unwrap();
    stage.store.retry(lease.run).await.unwrap();
    let before = stage.snapshot().await;
    stage.store.settle(lease, settle.clone()).await.unwrap();
    stage.assert_unchanged(&before).await;
    let held = new.take(lease.run).await;
    let before = stage.snapshot().await;
    assert_eq!(stage.store.settle(lease, settle).await.unwrap(), Settled::AsSaid);
    stage.assert_unchanged(&before).await;
    stage.record(held, vec![done(2, "pay", 1)]).await.unwrap();
    stage.settle(held, End::Completed(json(1))).await.unwrap();
}

/// A late repeat of a settle is known even when its worker was lost since.
pub async fn late_repeat_of_a_settle_by_a_lost_worker_is_known(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker().await);
    let lease = stage.settled(&old, End::Released).await;
    stage.lose(&old, &new).await;
    new.take(lease.run).await;
    let before = stage.snapshot().await;
    assert_eq!(stage.settle(lease, End::Released).await.unwrap(), Settled::AsSaid);
    stage.assert_unchanged(&before).await;
}

/// What changed code asks for no more is noted on the run, the first few steps of it, and stays
/// noted when a later attempt has nothing to add.
pub async fn unasked_steps_are_noted_on_the_run(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let unasked: Vec<String> = (10..25).map(|number| format!("step {number}")).collect();
    let settle = Settle { unasked: unasked.clone(), ..Settle::new(vec![], End::Released) };
    stage.store.settle(lease, settle.clone()).await.unwrap();
    stage.store.settle(lease, settle).await.unwrap();
    let noted = stage.run(lease.run).await.code_change.unwrap();
    assert_eq!((noted.build.as_str(), noted.at), (BUILD, stage.now()));
    assert_eq!(noted.unasked, unasked[..MISMATCH_LISTED_MAX]);
    stage.pass(10);
    let again = worker.take(lease.run).await;
    stage.settle(again, End::Completed(json(1))).await.unwrap();
    assert_eq!(stage.run(lease.run).await.code_change, Some(noted));
}
