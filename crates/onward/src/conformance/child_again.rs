//! What an operator does to a parent, and what that means for its children.

use super::child::{awaiting, child_of};
use super::stage::*;
use crate::limits::CASCADE_BATCH_MAX;
use crate::store::{End, Lease, Steer};
use crate::{Entry, Json, RunId, RunState};

const STEP: &str = "$child/ship";

fn steer(stage: &Stage) -> &dyn Steer {
    stage.store.steer().unwrap()
}

/// A parent whose child failed, and that failed for it. The child's end is recorded.
async fn failed_for_its_child(stage: &Stage, worker: &Worker) -> (RunId, RunId) {
    let lease = stage.running(worker).await;
    let child = stage.start(child_of(lease, STEP)).await;
    let held = worker.take(child).await;
    stage.record(held, vec![failed(1, "pack")]).await.unwrap();
    stage.settle(held, failed_at("pack")).await.unwrap();
    fail_for_child(stage, lease).await;
    (lease.run, child)
}

async fn fail_for_child(stage: &Stage, lease: Lease) {
    let told = stage.store.inbox(lease.run, 0).await.unwrap().signals.remove(0);
    let arrived = entry(1, &told.recorded_as(), Entry::Arrived(told.body));
    stage.record(lease, vec![arrived]).await.unwrap();
    stage.settle(lease, failed_at(STEP)).await.unwrap();
}

async fn untaken(worker: &Worker, run: RunId) -> (Lease, Vec<Json>) {
    let claimed = worker.take_whole(run).await;
    assert!(claimed.history.is_empty(), "what the child told is taken back");
    (claimed.lease, claimed.signals.into_iter().map(|signal| signal.body).collect())
}

/// A retry of a parent that failed for its child retries the child, and waits for its new end.
pub async fn retry_of_a_parent_retries_its_failed_child(stage: &Stage) {
    let worker = stage.worker().await;
    let (parent, child) = failed_for_its_child(stage, &worker).await;
    stage.pass(5);
    let retried = stage.store.retry(parent).await.unwrap();
    assert_eq!(retried, stage.run(parent).await);
    assert_eq!(stage.state(child).await, RunState::Queued);
    assert_eq!(stage.history(parent).await[0].voided_at, Some(stage.now()));
    let (lease, signals) = match worker.claim(2).await.runs {
        mut runs if runs.len() == 2 => {
            let place = runs.iter().position(|claimed| claimed.run.id == parent).unwrap();
            let parent = runs.remove(place);
            stage.settle(runs[0].lease, End::Completed(json(7))).await.unwrap();
            (parent.lease, parent.signals)
        }
        runs => panic!("{runs:?}"),
    };
    assert_eq!(signals, []);
    let told = stage.store.inbox(parent, 0).await.unwrap().signals;
    assert_eq!(told.len(), 1);
    assert!(told[0].body.as_str().contains("completed"), "{told:?}");
    assert_eq!(told[0].no, 2, "numbers are not used twice");
    stage.settle(lease, awaiting(child, 0)).await.unwrap();
    assert_eq!(stage.state(parent).await, RunState::Queued, "and it is woken");
}

/// A retry that is repeated changes nothing.
pub async fn retry_of_a_parent_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let (parent, _) = failed_for_its_child(stage, &worker).await;
    super::lost_answer::repeated(stage, |store| crate::store::Store::retry(store, parent)).await;
}

/// A child that was retried by itself and completed tells its parent when that is retried.
pub async fn retry_of_a_parent_hears_of_a_child_that_completed_since(stage: &Stage) {
    let worker = stage.worker().await;
    let (parent, child) = failed_for_its_child(stage, &worker).await;
    stage.store.retry(child).await.unwrap();
    let held = worker.take(child).await;
    stage.settle(held, End::Completed(json(7))).await.unwrap();
    stage.store.retry(parent).await.unwrap();
    let (_, signals) = untaken(&worker, parent).await;
    assert_eq!(signals.len(), 1);
    assert!(signals[0].as_str().contains('7'), "{signals:?}");
}

/// A child that was retried by itself and goes on is waited for.
pub async fn retry_of_a_parent_awaits_a_child_that_goes_on(stage: &Stage) {
    let worker = stage.worker().await;
    let (parent, child) = failed_for_its_child(stage, &worker).await;
    stage.store.retry(child).await.unwrap();
    let held = worker.take(child).await;
    stage.store.retry(parent).await.unwrap();
    let (_, signals) = untaken(&worker, parent).await;
    assert_eq!(signals, []);
    stage.settle(held, End::Completed(json(7))).await.unwrap();
    assert_eq!(stage.store.inbox(parent, 0).await.unwrap().signals.len(), 1);
}

/// A cancelled child stays cancelled, and its parent is told the same again.
pub async fn retry_of_a_parent_leaves_a_cancelled_child(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(child_of(lease, STEP)).await;
    stage.store.cancel(child).await.unwrap();
    fail_for_child(stage, lease).await;
    stage.store.retry(lease.run).await.unwrap();
    assert_eq!(stage.state(child).await, RunState::Cancelled);
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!((claimed.history.len(), claimed.signals.len()), (1, 0));
}

/// A failure that came from a grandchild is retried there.
pub async fn retry_reaches_down_to_the_grandchild(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = worker.take(stage.start(child_of(lease, STEP)).await).await;
    let grandchild = worker.take(stage.start(child_of(child, STEP)).await).await;
    stage.record(grandchild, vec![failed(1, "pack")]).await.unwrap();
    stage.settle(grandchild, failed_at("pack")).await.unwrap();
    fail_for_child(stage, child).await;
    fail_for_child(stage, lease).await;
    stage.store.retry(lease.run).await.unwrap();
    for run in [lease.run, child.run, grandchild.run] {
        assert_eq!(stage.state(run).await, RunState::Queued);
    }
    assert!(stage.history(grandchild.run).await[0].voided_at.is_some());
}

/// Children of a cancelled run are asked to end without a sweep; those that are detached are not.
pub async fn cascade_reaches_children_at_once(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let held = worker.take(stage.start(child_of(lease, "a")).await).await;
    let queued = stage.start(child_of(lease, "b")).await;
    let mut detached = child_of(lease, "c");
    detached.parent.as_mut().unwrap().detached = true;
    let detached = stage.start(detached).await;
    assert!(!steer(stage).cascade().await.unwrap(), "nobody is cancelled yet");
    stage.settle(lease, End::Cancelled).await.unwrap();
    while steer(stage).cascade().await.unwrap() {}
    assert!(stage.run(held.run).await.cancel_at.is_some(), "its holder ends it");
    assert_eq!(stage.state(queued).await, RunState::Cancelled);
    assert_eq!(stage.state(detached).await, RunState::Queued);
    let before = stage.snapshot().await;
    assert!(!worker.sweep().await.more);
    stage.assert_unchanged(&before).await;
}

/// A cancel reaches children as soon as it is requested: their parent may take long for its grace time
/// and its undos, or wait until a worker claims it.
pub async fn cascade_reaches_children_while_their_parent_goes_on(stage: &Stage) {
    let worker = stage.worker().await;
    let (held, parks) = (stage.running(&worker).await, stage.running(&worker).await);
    let child = stage.start(child_of(held, "a")).await;
    let other = stage.start(child_of(parks, "a")).await;
    stage.record(parks, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(parks, parked(0)).await.unwrap();
    for parent in [held, parks] {
        stage.store.cancel(parent.run).await.unwrap();
    }
    while steer(stage).cascade().await.unwrap() {}
    assert_eq!(stage.state(held.run).await, RunState::Running);
    assert_eq!(stage.state(parks.run).await, RunState::Queued);
    for child in [child, other] {
        assert_eq!(stage.state(child).await, RunState::Cancelled);
    }
}

/// If a run is asked to end and starts a child before it notices, the child is asked too.
pub async fn child_of_a_run_that_is_to_end_is_asked_too(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.store.cancel(lease.run).await.unwrap();
    while steer(stage).cascade().await.unwrap() {}
    let child = stage.start(child_of(lease, "a")).await;
    worker.sweep().await;
    assert_eq!(stage.state(child).await, RunState::Cancelled);
    assert_eq!(stage.state(lease.run).await, RunState::Running);
}

/// A child that ends at once, since it has no records, has its own children asked too.
pub async fn cascade_reaches_grandchildren(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = worker.take(stage.start(child_of(lease, "a")).await).await;
    let grandchild = stage.start(child_of(child, "b")).await;
    stage.settle(child, awaiting(grandchild, 0)).await.unwrap();
    stage.settle(lease, End::Cancelled).await.unwrap();
    while steer(stage).cascade().await.unwrap() {}
    for run in [child.run, grandchild] {
        assert_eq!(stage.state(run).await, RunState::Cancelled);
    }
}

/// One pass asks a bounded number of children, and says that there may be more.
pub async fn cascade_is_bounded(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let children: Vec<_> =
        (0..=CASCADE_BATCH_MAX).map(|number| child_of(lease, &number.to_string())).collect();
    stage.store.start(children).await.unwrap();
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert!(steer(stage).cascade().await.unwrap());
    let left = || async {
        let runs = stage.snapshot().await.runs;
        runs.into_iter().filter(|run| run.state != RunState::Cancelled).count()
    };
    assert_eq!(left().await, 1);
    while steer(stage).cascade().await.unwrap() {}
    assert_eq!(left().await, 0);
}

/// A cascade whose answer was lost is repeated without harm.
pub async fn lost_answer_of_a_cascade(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.start(child_of(lease, "a")).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    super::lost_answer::repeated(stage, |store| store.cascade()).await;
}
