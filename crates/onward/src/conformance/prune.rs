//! Pruning: only what ended, only what is old, in bounded batches.

use tokio::task::JoinSet;

use super::child::cancelled_family;
use super::stage::*;
use crate::limits::PRUNE_BATCH_MAX;
use crate::store::{End, Error, Import, Prune, Pruned, StartedHow, Which};
use crate::{OnConflict, RunId, RunState};

/// Only ended runs go, however old the others are.
pub async fn prune_never_touches_live_runs(stage: &Stage) {
    let worker = stage.worker().await;
    stage.running(&worker).await;
    stage.settled(&worker, parked(0)).await;
    let ended = stage.settled(&worker, End::Completed(json(1))).await.run;
    stage.start(new_run()).await;
    stage.pass(1_000_000);
    let pruned = stage.store.prune(all()).await.unwrap();
    assert_eq!(pruned, Pruned { runs: 1, more: false });
    assert_eq!(stage.store.get(Which::Id(ended)).await.unwrap(), None);
    assert_eq!(stage.snapshot().await.runs.len(), 3);
}

/// Only runs that ended at least that long ago go.
pub async fn prune_spares_young_runs(stage: &Stage) {
    let worker = stage.worker().await;
    let old = stage.settled(&worker, End::Completed(json(1))).await.run;
    stage.pass(1);
    let young = stage.settled(&worker, End::Completed(json(1))).await.run;
    stage.pass(999);
    let prune = Prune { older_than_ms: 1_000, ..all() };
    assert_eq!(stage.store.prune(prune).await.unwrap().runs, 1);
    assert_eq!(stage.store.get(Which::Id(old)).await.unwrap(), None);
    assert_eq!(stage.state(young).await, RunState::Completed);
}

/// Only runs in the given states go, and a state that is not final is passed over.
pub async fn prune_keeps_to_the_given_states(stage: &Stage) {
    let worker = stage.worker().await;
    let failed = stage.settled(&worker, failed_at("pay")).await.run;
    let completed = stage.settled(&worker, End::Completed(json(1))).await.run;
    let queued = stage.start(new_run()).await;
    let states = vec![RunState::Failed, RunState::Queued];
    let pruned = stage.store.prune(Prune { states, ..all() }).await.unwrap();
    assert_eq!(pruned.runs, 1);
    assert_eq!(stage.store.get(Which::Id(failed)).await.unwrap(), None);
    assert_eq!(stage.state(completed).await, RunState::Completed);
    assert_eq!(stage.state(queued).await, RunState::Queued);
}

/// The children of a cancelled run end, though it is pruned before any sweep asked them to.
pub async fn prune_asks_the_children_of_cancelled_runs_to_end(stage: &Stage) {
    let worker = stage.worker().await;
    let (_, children) = cancelled_family(stage, &worker).await;
    let counted = stage.store.prune(Prune { dry_run: true, ..all() }).await.unwrap();
    assert_eq!(counted, Pruned { runs: 2, more: false }, "it counts, and asks nobody");
    for child in &children {
        assert_eq!(stage.state(*child).await, RunState::Queued);
    }
    let mut pruned = 0;
    loop {
        let batch = stage.store.prune(all()).await.unwrap();
        pruned += batch.runs;
        if !batch.more {
            break;
        }
    }
    assert_eq!(pruned, 2 + children.len() as u64);
    assert!(stage.snapshot().await.runs.is_empty());
}

/// A prune takes the oldest up to its limit, and says that more match.
pub async fn prune_is_bounded(stage: &Stage) {
    let worker = stage.worker().await;
    let mut ended = Vec::new();
    for _ in 0..3 {
        ended.push(stage.settled(&worker, End::Completed(json(1))).await.run);
        stage.pass(1);
    }
    let prune = Prune { limit: 2, ..all() };
    let first = stage.store.prune(prune.clone()).await.unwrap();
    assert_eq!(first, Pruned { runs: 2, more: true });
    assert_eq!(stage.state(ended[2]).await, RunState::Completed, "the youngest is left");
    let second = stage.store.prune(prune).await.unwrap();
    assert_eq!(second, Pruned { runs: 1, more: false });
}

/// A prune deletes a bounded number of runs, whatever its limit says.
pub async fn prune_is_bounded_whatever_its_limit(stage: &Stage) {
    let runs: Vec<_> = (0..PRUNE_BATCH_MAX).map(|_| new_run()).collect();
    stage.store.start(runs.clone()).await.unwrap();
    let last = stage.start(new_run()).await;
    let mut cancelling = JoinSet::new();
    for run in runs.into_iter().map(|run| run.id).chain([last]) {
        if cancelling.len() == AT_ONCE_MAX {
            cancelling.join_next().await.unwrap().unwrap();
        }
        let store = stage.store.clone();
        cancelling.spawn(async move { store.cancel(run).await.unwrap() });
    }
    cancelling.join_all().await;
    let mut prune = all();
    prune.limit = usize::MAX;
    let first = stage.store.prune(prune.clone()).await.unwrap();
    assert_eq!((first.runs, first.more), (PRUNE_BATCH_MAX as u64, true));
    let second = stage.store.prune(prune).await.unwrap();
    assert_eq!((second.runs, second.more), (1, false));
}

/// A prune with a limit of 0 takes one run, so that whoever prunes until no more is left ends.
pub async fn prune_with_no_limit_still_goes_on(stage: &Stage) {
    let worker = stage.worker().await;
    for _ in 0..2 {
        stage.settled(&worker, End::Completed(json(1))).await;
    }
    let prune = Prune { limit: 0, ..all() };
    let first = stage.store.prune(prune.clone()).await.unwrap();
    assert_eq!(first, Pruned { runs: 1, more: true });
    let second = stage.store.prune(prune).await.unwrap();
    assert_eq!(second, Pruned { runs: 1, more: false });
}

/// A dry run counts without a limit and deletes nothing.
pub async fn dry_run_deletes_nothing(stage: &Stage) {
    let worker = stage.worker().await;
    for _ in 0..3 {
        stage.settled(&worker, End::Completed(json(1))).await;
    }
    let before = stage.snapshot().await;
    let prune = Prune { limit: 1, dry_run: true, ..all() };
    let pruned = stage.store.prune(prune).await.unwrap();
    assert_eq!(pruned, Pruned { runs: 3, more: false });
    stage.assert_unchanged(&before).await;
}

/// A prune that is repeated finds nothing.
pub async fn prune_twice(stage: &Stage) {
    let worker = stage.worker().await;
    stage.settled(&worker, End::Completed(json(1))).await;
    stage.start(new_run()).await;
    stage.store.prune(all()).await.unwrap();
    let before = stage.snapshot().await;
    assert_eq!(stage.store.prune(all()).await.unwrap(), Pruned::default());
    stage.assert_unchanged(&before).await;
}

/// A pruned run takes its key with it, and no other.
pub async fn prune_frees_the_keys_of_pruned_runs_only(stage: &Stage) {
    let worker = stage.worker().await;
    let old = ended_with_key(stage, &worker, "order-1").await;
    let kept = stage.start(keyed("order-2", 1, OnConflict::Existing)).await;
    stage.store.prune(all()).await.unwrap();
    assert_eq!(stage.by_key("order-1").await, None);
    assert_eq!(stage.by_key("order-2").await, Some(kept));
    let again = stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await.unwrap();
    assert_eq!(again.how, StartedHow::New);
    assert_ne!(again.run, old);
}

/// A key that went on to a newer run stays with it when the old one is pruned.
pub async fn prune_leaves_a_key_that_went_on(stage: &Stage) {
    let worker = stage.worker().await;
    ended_with_key(stage, &worker, "order-1").await;
    let new = stage.start(keyed("order-1", 2, OnConflict::Replace)).await;
    assert_eq!(stage.store.prune(all()).await.unwrap().runs, 1);
    assert_eq!(stage.by_key("order-1").await, Some(new));
    worker.take(new).await;
}

/// All that belongs to a pruned run goes with it.
pub async fn prune_takes_the_history_along(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    stage.store.prune(all()).await.unwrap();
    let history = stage.store.history(lease.run, None, 10).await;
    assert!(matches!(history, Err(Error::NotFound)), "{history:?}");
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    assert_lost(stage.settle(lease, End::Completed(json(1))).await);
}

async fn ended_with_key(stage: &Stage, worker: &Worker, key: &str) -> RunId {
    let run = stage.start(keyed(key, 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    run
}

/// Whatever came with an imported run goes with it.
pub async fn prune_takes_an_imported_run_whole(stage: &Stage) {
    let Some(portable) = stage.store.portable() else { return };
    let source = stage.reference();
    let worker = source.worker().await;
    let run = source.start(keyed("order-1", 1, OnConflict::Existing)).await;
    source.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    source.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    source.settle(lease, End::Completed(json(1))).await.unwrap();
    let runs = source.store.portable().unwrap().export(None, 10).await.unwrap();
    let import = Import { runs, dry_run: false };
    portable.import(import.clone()).await.unwrap();
    stage.pass(1);
    assert_eq!(stage.store.prune(all()).await.unwrap(), Pruned { runs: 1, more: false });
    assert_eq!(stage.by_key("order-1").await, None);
    // Were anything left of it, it would come in twice.
    assert_eq!(portable.import(import.clone()).await.unwrap().new, 1);
    assert_eq!(portable.export(None, 10).await.unwrap(), import.runs);
}

/// Every run that ended, now.
fn all() -> Prune {
    Prune { older_than_ms: 0, states: RunState::ALL.to_vec(), limit: 100, dry_run: false }
}
