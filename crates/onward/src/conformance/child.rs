//! Children: started under their parent's lease, and their ends told to it, once.

use super::stage::*;
use crate::limits::CASCADE_BATCH_MAX;
use crate::store::{Conflict, End, Lease, NewParent, NewRun, Settled};
use crate::{Failure, Parent, RunId, RunState, Waits};

pub(super) fn child_of(lease: Lease, step: &str) -> NewRun {
    let parent = NewParent { lease, step: step.to_owned(), detached: false };
    NewRun { parent: Some(parent), ..new_run() }
}

/// The end of an attempt that waits for a child.
pub(super) fn awaiting(child: RunId, wakes_seen: u64) -> End {
    End::Parked { wake_at: None, waits_for: Waits::Child { run: child }, wakes_seen }
}

/// A run that went on as another and was cancelled then, and a queued child of each.
pub(super) async fn cancelled_family(stage: &Stage, worker: &Worker) -> (RunId, [RunId; 2]) {
    let elsewhere = |new| NewRun { queue: "elsewhere".to_owned(), ..new };
    let lease = stage.running(worker).await;
    let earlier = stage.start(elsewhere(child_of(lease, "a"))).await;
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(2), undelivered: Vec::new() };
    stage.settle(lease, end).await.unwrap();
    let lease = worker.take(next).await;
    let later = stage.start(elsewhere(child_of(lease, "b"))).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    (next, [earlier, later])
}

async fn told(stage: &Stage, parent: RunId) -> Vec<(String, String)> {
    let inbox = stage.store.inbox(parent, 0).await.unwrap();
    let told = inbox.signals.into_iter();
    told.map(|signal| (signal.recorded_as(), signal.body.as_str().to_owned())).collect()
}

/// A child knows its parent, and starting it again is known.
pub async fn start_of_a_child_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let new = child_of(lease, "$child/ship");
    let child = stage.start(new.clone()).await;
    assert_eq!(child, new.id);
    assert_eq!(stage.start(new).await, child);
    let parent = Parent { run: lease.run, step: "$child/ship".to_owned(), detached: false };
    assert_eq!(stage.run(child).await.parent, Some(parent));
    assert_eq!(stage.snapshot().await.runs.len(), 2);
}

/// Who does not hold the parent starts no child of it; one that was started is still known.
pub async fn start_of_a_child_with_stale_lease(stage: &Stage) {
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&worker).await;
    let before_loss = child_of(lease, "$child/one");
    stage.start(before_loss.clone()).await;
    stage.lose(&worker, &sweeper).await;
    let before = stage.snapshot().await;
    assert_lost(stage.try_start(child_of(lease, "$child/two")).await);
    stage.assert_unchanged(&before).await;
    assert_eq!(stage.start(before_loss.clone()).await, before_loss.id);
    let held = sweeper.claim(2).await.runs;
    let held = held.iter().find(|claimed| claimed.lease.run == lease.run).unwrap().lease;
    let stale = Lease { attempt: held.attempt + 7, ..held };
    assert_lost(stage.try_start(child_of(stale, "$child/three")).await);
}

/// Every end of a child is told to its parent, with what it ended with.
pub async fn end_of_a_child_is_told(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let failed = End::Failed { failure: Failure::fatal("no stock").code("sold_out"), step: None };
    for (step, end) in [("a", End::Completed(json(7))), ("b", failed), ("c", End::Cancelled)] {
        let child = stage.start(child_of(lease, step)).await;
        let child = worker.take(child).await;
        stage.settle(child, end).await.unwrap();
    }
    let told = told(stage, lease.run).await;
    assert_eq!(told[0], ("a#1".to_owned(), r#"{"state":"completed","output":7}"#.to_owned()));
    assert_eq!(told[1].0, "b#2");
    assert!(told[1].1.contains(r#""state":"failed""#) && told[1].1.contains("sold_out"));
    assert_eq!(told[2], ("c#3".to_owned(), r#"{"state":"cancelled"}"#.to_owned()));
    assert_eq!(stage.run(lease.run).await.wakes, 3);
}

/// A repeated settle of a child, and its end after a retry, tell the parent nothing new.
pub async fn end_of_a_child_is_told_once(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(child_of(lease, "$child/ship")).await;
    let first = worker.take(child).await;
    stage.settle(first, failed_at("pay")).await.unwrap();
    stage.settle(first, failed_at("pay")).await.unwrap();
    stage.store.retry(child).await.unwrap();
    let second = worker.take(child).await;
    stage.settle(second, End::Completed(json(1))).await.unwrap();
    assert_eq!(told(stage, lease.run).await.len(), 1);
}

/// A child that is cancelled before it began tells its parent too.
pub async fn cancelled_child_is_told(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(child_of(lease, "$child/ship")).await;
    stage.store.cancel(child).await.unwrap();
    let told = told(stage, lease.run).await;
    assert_eq!(told[0].1, r#"{"state":"cancelled"}"#);
}

/// A parent that waits for its child is queued by the child's end.
pub async fn end_of_a_child_wakes_its_parent(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(child_of(lease, "$child/ship")).await;
    assert_eq!(stage.settle(lease, awaiting(child, 0)).await.unwrap(), Settled::AsSaid);
    let held = worker.take(child).await;
    stage.pass(3);
    stage.settle(held, End::Completed(json(7))).await.unwrap();
    let parent = stage.run(lease.run).await;
    assert_eq!((parent.state, parent.due_at), (RunState::Queued, Some(stage.now())));
    assert_eq!(worker.take_whole(lease.run).await.signals.len(), 1);
}

/// A child's end that comes between its parent's look and its park is not slept over.
pub async fn end_of_a_child_before_the_park_is_not_missed(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(child_of(lease, "$child/ship")).await;
    let held = worker.take(child).await;
    stage.settle(held, End::Completed(json(7))).await.unwrap();
    assert_eq!(stage.settle(lease, awaiting(child, 0)).await.unwrap(), Settled::Queued);
}

/// A parent that has completed or was cancelled is not notified, and its child still ends.
pub async fn end_of_a_child_after_its_parents(stage: &Stage) {
    let worker = stage.worker().await;
    for end in [End::Completed(json(1)), End::Cancelled] {
        let lease = stage.running(&worker).await;
        let mut child = child_of(lease, "$child/ship");
        child.parent.as_mut().unwrap().detached = true;
        let child = stage.start(child).await;
        stage.settle(lease, end).await.unwrap();
        let held = worker.take(child).await;
        stage.settle(held, End::Completed(json(7))).await.unwrap();
        assert!(told(stage, lease.run).await.is_empty());
        assert_eq!(stage.state(child).await, RunState::Completed);
    }
}

/// A failed parent keeps how its child ended, since a retry of the parent waits for the child again.
/// The end wakes nobody. Like every end of a child, it is kept past the limit of signals.
pub async fn end_of_a_child_is_kept_for_a_failed_parent(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let ends = [End::Completed(json(7)), failed_at("pack")];
    let mut children = Vec::new();
    for (step, end) in ["$child/ship", "$child/ship#2"].into_iter().zip(ends) {
        children.push((worker.take(stage.start(child_of(lease, step)).await).await, end));
    }
    stage.settle(lease, failed_at("pay")).await.unwrap();
    let before = stage.run(lease.run).await;
    for (held, end) in children {
        stage.settle(held, end).await.unwrap();
    }
    let after = stage.run(lease.run).await;
    assert_eq!((after.state, after.wakes), (before.state, before.wakes));
    let sent = stage.store.signal(super::signal::new_signal(lease.run, "go", 1)).await;
    assert_conflict(sent, Conflict::Finished { run: lease.run });
    stage.store.retry(lease.run).await.unwrap();
    let signals = worker.take_whole(lease.run).await.signals;
    let steps: Vec<_> = signals.iter().map(|signal| signal.step.as_str()).collect();
    assert_eq!(steps, ["$child/ship", "$child/ship#2"]);
    assert!(signals[0].body.as_str().contains("completed"));
    assert!(signals[1].body.as_str().contains("declined"));
}

/// A child that goes on as another tells its parent at the end of the last.
pub async fn end_of_a_continued_child_is_told(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(child_of(lease, "$child/ship")).await;
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(2), undelivered: Vec::new() };
    stage.settle(worker.take(child).await, end).await.unwrap();
    assert!(told(stage, lease.run).await.is_empty());
    stage.settle(worker.take(next).await, End::Completed(json(7))).await.unwrap();
    assert_eq!(told(stage, lease.run).await.len(), 1);
}

/// A cancel of a parent reaches its children with the next sweep, and theirs; not those that are
/// detached.
pub async fn cancel_of_a_parent_reaches_its_children(stage: &Stage) {
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&worker).await;
    let queued = stage.start(child_of(lease, "a")).await;
    let held = worker.take(queued).await;
    let grandchild = stage.start(child_of(held, "b")).await;
    let mut detached = child_of(lease, "c");
    detached.parent.as_mut().unwrap().detached = true;
    let detached = stage.start(detached).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    sweeper.sweep().await;
    assert!(stage.run(held.run).await.cancel_at.is_some(), "its holder ends it");
    stage.settle(held, End::Cancelled).await.unwrap();
    sweeper.sweep().await;
    assert_eq!(stage.state(grandchild).await, RunState::Cancelled);
    assert_eq!(stage.state(detached).await, RunState::Queued);
    let before = stage.snapshot().await;
    sweeper.sweep().await;
    stage.assert_unchanged(&before).await;
}

/// A parent that was asked to end and fails, since not all of it could be undone, ends its children
/// as well.
pub async fn cancel_of_a_parent_that_fails_reaches_its_children(stage: &Stage) {
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&worker).await;
    let child = stage.start(child_of(lease, "a")).await;
    stage.store.cancel(lease.run).await.unwrap();
    stage.settle(lease, failed_at("pay")).await.unwrap();
    sweeper.sweep().await;
    assert_eq!(stage.state(child).await, RunState::Cancelled);
}

/// A parent that completes or fails leaves its children alone: a retry of it may need them.
pub async fn other_ends_of_a_parent_leave_its_children_alone(stage: &Stage) {
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    for end in [End::Completed(json(1)), failed_at("pay")] {
        let lease = stage.running(&worker).await;
        let child = stage.start(child_of(lease, "a")).await;
        stage.settle(lease, end).await.unwrap();
        sweeper.sweep().await;
        assert_eq!(stage.state(child).await, RunState::Queued);
        worker.take(child).await;
    }
}

/// A sweep asks a bounded number of children, and says that there are more.
pub async fn cancel_of_many_children_is_bounded(stage: &Stage) {
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&worker).await;
    let children: Vec<_> =
        (0..=CASCADE_BATCH_MAX).map(|number| child_of(lease, &number.to_string())).collect();
    stage.store.start(children).await.unwrap();
    stage.store.cancel(lease.run).await.unwrap();
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert!(sweeper.sweep().await.more);
    sweeper.sweep().await;
    let runs = stage.snapshot().await.runs;
    assert!(runs.iter().all(|run| run.state == RunState::Cancelled));
}
