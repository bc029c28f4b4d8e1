//! Runs that turn back: what is recorded of it is a record as any other, and the work is not taken
//! up again.

use super::stage::*;
use crate::model::step_id::UNDO;
use crate::store::{Conflict, End, Fork, Lease, Settle};
use crate::{Code, Failure, OnConflict, RunId, RunState};

/// A failed run, `order`'s, whose undo has begun.
async fn undone(stage: &Stage) -> (Worker, Lease) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    stage.record(lease, vec![done(1, "charge", 1), done(2, UNDO, 1)]).await.unwrap();
    let failure = Failure::fatal("no");
    let settle = Settle::new(vec![done(3, "$undo/charge", 1)], End::Failed { failure, step: None });
    stage.store.settle(lease, settle).await.unwrap();
    (worker, lease)
}

/// A run whose undo has begun is not retried, by nobody and however often.
pub async fn undone_run_is_not_retried(stage: &Stage) {
    let (worker, lease) = undone(stage).await;
    let run = lease.run;
    let before = stage.snapshot().await;
    for _ in 0..2 {
        assert_conflict(stage.store.retry(run).await, Conflict::Undone { run });
        let again = stage.try_start(keyed("order", 1, OnConflict::RetryFailed)).await;
        assert_conflict(again, Conflict::Undone { run });
    }
    stage.assert_unchanged(&before).await;
    worker.assert_nothing_to_claim().await;
}

/// What a run has undone is not copied as if it were done; a fork from its first step is a fresh start.
pub async fn undone_steps_are_not_forked(stage: &Stage) {
    let (_worker, lease) = undone(stage).await;
    let run = lease.run;
    let steer = stage.store.steer().unwrap();
    let fork_of = |step: &str| Fork {
        id: RunId::new(),
        run,
        step: step.to_owned(),
        input: None,
        key: None,
        rewritten: None,
    };
    let before = stage.snapshot().await;
    for step in [UNDO, "$undo/charge"] {
        assert_conflict(steer.fork(fork_of(step)).await, Conflict::Undone { run });
    }
    stage.assert_unchanged(&before).await;
    let afresh = steer.fork(fork_of("charge")).await.unwrap();
    assert!(stage.history(afresh.id).await.is_empty());
}

/// A run is not retried while it is undone, or when it was cancelled and undone.
pub async fn run_on_its_way_back_is_not_retried(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let run = lease.run;
    stage.record(lease, vec![done(1, "charge", 1), done(2, UNDO, 1)]).await.unwrap();
    assert_conflict(stage.store.retry(run).await, Conflict::Undone { run });
    stage.settle(lease, parked(0)).await.unwrap();
    assert_conflict(stage.store.retry(run).await, Conflict::Undone { run });
    stage.store.cancel(run).await.unwrap();
    let lease = worker.take(run).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert_conflict(stage.store.retry(run).await, Conflict::Undone { run });
}

/// A run that is stuck on its way back goes on with it when it is retried, with its whole history.
pub async fn run_stuck_on_its_way_back_goes_on(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "charge", 1), done(2, UNDO, 1)]).await.unwrap();
    let wakes_seen = stage.run(lease.run).await.wakes;
    let end = End::Stuck { code: Code::HistoryMismatch, detail: "why".to_owned(), wakes_seen };
    stage.settle(lease, end).await.unwrap();
    let first = stage.store.retry(lease.run).await.unwrap();
    assert_eq!(first.state, RunState::Queued);
    assert_eq!(stage.store.retry(lease.run).await.unwrap(), first, "again: the same");
    let history = worker.take_whole(lease.run).await.history;
    assert_eq!(steps(&history), [(1, "charge"), (2, UNDO)]);
}

/// That the undo began is recorded once, and a repeat is known.
pub async fn undo_begins_once(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let began = vec![done(1, UNDO, 1)];
    stage.record(lease, began.clone()).await.unwrap();
    let before = stage.snapshot().await;
    stage.record(lease, began).await.unwrap();
    let other = stage.record(lease, vec![done(2, UNDO, 2)]).await;
    assert_conflict(other, Conflict::Record { run: lease.run });
    stage.assert_unchanged(&before).await;
}

/// A worker that lost its lease cannot let an undo begin.
pub async fn undo_begins_with_stale_lease(stage: &Stage) {
    let (lease, new) = stage.stale().await;
    let before = stage.snapshot().await;
    assert_lost(stage.record(lease, vec![done(1, UNDO, 1)]).await);
    stage.assert_unchanged(&before).await;
    let run = new.take(lease.run).await.run;
    assert_conflict(stage.store.retry(run).await, Conflict::NotFailed { run });
}
