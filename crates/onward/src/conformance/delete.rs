//! Deleting one run, or freeing its key: whole, once, and only when it has ended.
//!
//! A store that deletes none passes by having no answer.

use super::child::cancelled_family;
use super::every_kind::expiring;
use super::stage::*;
use crate::store::{Conflict, End, StartedHow, Which};
use crate::{OnConflict, RunId, RunState};

/// A deleted run leaves nothing, and its key is free.
pub async fn deleted_run_leaves_nothing(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let before = stage.snapshot().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    stage.try_start(keyed("order-1", 1, OnConflict::Existing)).await.unwrap();
    let worker = stage.worker().await;
    let lease = worker.take(run).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    stage.settle(lease, End::Completed(json(2))).await.unwrap();
    assert!(deletes.delete_run(run).await.unwrap());
    assert_eq!(stage.other.get(Which::Id(run)).await.unwrap(), None);
    assert_eq!(stage.by_key("order-1").await, None);
    assert_eq!(stage.snapshot().await.runs, before.runs);
    let again = stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await.unwrap();
    assert_eq!(again.how, StartedHow::New);
}

/// A run is deleted once; one that is not there is no error.
pub async fn delete_run_twice(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let run = stage.start(new_run()).await;
    stage.store.cancel(run).await.unwrap();
    assert!(deletes.delete_run(run).await.unwrap());
    assert!(!deletes.delete_run(run).await.unwrap());
    assert!(!deletes.delete_run(RunId::new()).await.unwrap());
}

/// The children of a cancelled run end, though it is deleted before any sweep asked them to: its own, and those
/// of the run that went on as it.
pub async fn children_of_a_deleted_run_are_asked_to_end(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let worker = stage.worker().await;
    let (parent, children) = cancelled_family(stage, &worker).await;
    assert!(deletes.delete_run(parent).await.unwrap());
    for child in children {
        assert_eq!(stage.state(child).await, RunState::Cancelled);
    }
}

/// A run that has not ended stays as it is.
pub async fn live_run_is_not_deleted(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let worker = stage.worker().await;
    let running = stage.running(&worker).await.run;
    let queued = stage.start(new_run()).await;
    let before = stage.snapshot().await;
    for run in [running, queued] {
        assert_conflict(deletes.delete_run(run).await, Conflict::NotEnded { run });
    }
    stage.assert_unchanged(&before).await;
}

/// A released key makes a new run, and the run that had it stays as it was.
pub async fn released_key_is_free(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let worker = stage.worker().await;
    let lease = worker.take(run).await;
    stage.settle(lease, End::Completed(json(2))).await.unwrap();
    let before = stage.run(run).await;
    assert!(deletes.release_run_key(run).await.unwrap());
    assert_eq!(stage.by_key("order-1").await, None);
    assert_eq!(stage.run(run).await, before);
    let again = stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await.unwrap();
    assert_eq!(again.how, StartedHow::New);
}

/// Released again, after a lost answer, the key stays with the run that has it by then.
pub async fn release_run_key_twice(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    stage.store.cancel(run).await.unwrap();
    assert!(deletes.release_run_key(run).await.unwrap());
    assert!(!deletes.release_run_key(run).await.unwrap());
    let next = stage.start(keyed("order-1", 2, OnConflict::Existing)).await;
    assert!(!deletes.release_run_key(run).await.unwrap());
    assert_eq!(stage.by_key("order-1").await, Some(next));
}

/// What has no key to give up is no error: a run without one, one whose key expired, none at all.
pub async fn release_of_no_key_changes_nothing(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let plain = stage.start(new_run()).await;
    stage.store.cancel(plain).await.unwrap();
    let expired = stage.start(expiring("order-1", 1_000)).await;
    stage.store.cancel(expired).await.unwrap();
    stage.pass(1_001);
    for run in [plain, expired, RunId::new()] {
        assert!(!deletes.release_run_key(run).await.unwrap());
    }
}

/// A run that has not ended keeps its key.
pub async fn live_run_keeps_its_key(stage: &Stage) {
    let Some(deletes) = stage.store.deletes() else { return };
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let worker = stage.worker().await;
    let before = stage.snapshot().await;
    assert_conflict(deletes.release_run_key(run).await, Conflict::NotEnded { run });
    stage.assert_unchanged(&before).await;
    worker.take(run).await;
    assert_conflict(deletes.release_run_key(run).await, Conflict::NotEnded { run });
    assert_eq!(stage.by_key("order-1").await, Some(run));
}
