//! Going on as another run: the key, the tags and the one behind move along.

use super::child::child_of;
use super::stage::*;
use crate::store::{Conflict, End, Lease, NewRun, Settle, StartedHow};
use crate::{OnConflict, RunId, RunState, Waits};

/// The run that goes on has all that the old one was started with, and a fresh history.
pub async fn continuation_inherits_all_but_the_history(stage: &Stage) {
    let worker = stage.worker().await;
    let tags = [("team".to_owned(), "search".to_owned())].into();
    let new = keyed("order-1", 1, OnConflict::Existing);
    let new = NewRun { tags, priority: 4, timeout_ms: Some(60_000), ..new };
    stage.start(new.clone()).await;
    let lease = worker.take(new.id).await;
    stage.record(lease, vec![done(1, "page", 1)]).await.unwrap();
    stage.pass(10);
    let next = go_on(stage, lease).await;
    let (old, run) = (stage.run(lease.run).await, stage.run(next).await);
    assert_eq!((old.state, old.continued_as), (RunState::Completed, Some(next)));
    assert_eq!((run.state, run.continued_from), (RunState::Queued, Some(lease.run)));
    assert_eq!((run.workflow, run.queue, run.priority), (old.workflow, old.queue, 4));
    assert_eq!((run.key, run.tags), (old.key, new.tags));
    assert_eq!(run.deadline_at, old.deadline_at);
    assert_eq!((run.input, run.created_at, run.attempt), (json(2), stage.now(), 0));
    assert!(worker.take_whole(next).await.history.is_empty());
}

/// The key gives the run that goes on, and a start with the original input too.
pub async fn continuation_takes_the_key(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    let next = go_on(stage, lease).await;
    assert_eq!(stage.by_key("order-1").await, Some(next));
    let again = stage.try_start(keyed("order-1", 1, OnConflict::Existing)).await.unwrap();
    assert_eq!((again.run, again.how), (next, StartedHow::Existing));
}

/// A run that is asked to end does not continue as another: the work that it must do on a cancel would
/// be lost. Its holder is notified, and nothing of the settle is written.
pub async fn marked_run_does_not_go_on(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    stage.record(lease, vec![done(1, "charge", 1)]).await.unwrap();
    stage.store.cancel(run).await.unwrap();
    let before = stage.snapshot().await;
    let end = End::Continued {
        run: RunId::new(),
        input: json(2),
        undelivered: vec!["$signal/go#1".into()],
    };
    for _ in 0..2 {
        let settle = Settle::new(vec![done(2, "page", 1)], end.clone());
        let refused = stage.store.settle(lease, settle).await;
        assert_conflict(refused, Conflict::Ending { run });
        stage.assert_unchanged(&before).await;
    }
    stage.record(lease, vec![done(2, "$undo", 1)]).await.unwrap();
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert_eq!(stage.state(run).await, RunState::Cancelled);
    assert_eq!(stage.by_key("order-1").await, Some(run));
}

/// A run cannot go on as one that is there, be it itself; nothing of the settle is written.
pub async fn continuation_onto_a_run_that_is_there_is_refused_whole(stage: &Stage) {
    let worker = stage.worker().await;
    let (other, lease) = (stage.running(&worker).await, stage.running(&worker).await);
    let before = stage.snapshot().await;
    for run in [other.run, lease.run] {
        let end = End::Continued { run, input: json(2), undelivered: Vec::new() };
        let settle = Settle::new(vec![done(1, "page", 1)], end);
        let refused = stage.store.settle(lease, settle).await;
        assert_conflict(refused, Conflict::Record { run: lease.run });
    }
    stage.assert_unchanged(&before).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
}

/// A late repeat of the settle leaves the run that goes on as it is, even after its end.
pub async fn late_repeat_of_a_continuation_is_known(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let end = End::Continued { run: RunId::new(), input: json(2), undelivered: Vec::new() };
    stage.settle(lease, end.clone()).await.unwrap();
    let next = stage.run(lease.run).await.continued_as.unwrap();
    let held = worker.take(next).await;
    stage.record(held, vec![done(1, "page", 2)]).await.unwrap();
    stage.settle(held, End::Completed(json(3))).await.unwrap();
    let before = stage.snapshot().await;
    stage.settle(lease, end).await.unwrap();
    stage.assert_unchanged(&before).await;
}

/// A run that waits behind the old one waits behind the one that goes on.
///
/// A replaced run is marked and so never goes on; only a retry of a stuck one takes its mark
/// away while another waits behind it.
pub async fn run_behind_moves_along(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    let behind = stage.start(keyed("order-1", 2, OnConflict::Replace)).await;
    let wakes = stage.run(run).await.wakes;
    stage.settle(lease, stuck(wakes)).await.unwrap();
    stage.store.retry(run).await.unwrap();
    let lease = worker.take(run).await;
    let next = go_on(stage, lease).await;
    let waits = stage.run(behind).await.waits_for;
    assert!(matches!(waits, Some(Waits::Behind { run, .. }) if run == next), "{waits:?}");
    assert_eq!(stage.run(next).await.successor, Some(behind));
    assert_eq!(stage.by_key("order-1").await, Some(behind), "the key stays with the newest");
    let lease = worker.take(next).await;
    worker.assert_nothing_to_claim().await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    worker.take(behind).await;
}

/// A cancel of the last run reaches the children that the runs before it started, except detached ones:
/// nobody else would end them.
pub async fn cancel_reaches_the_children_of_the_runs_before(stage: &Stage) {
    let worker = stage.worker().await;
    let mut lease = stage.running(&worker).await;
    let (mut children, mut detached) = (Vec::new(), child_of(lease, "$child/bill"));
    detached.parent.as_mut().unwrap().detached = true;
    let detached = stage.start(detached).await;
    worker.take(detached).await;
    for _ in 0..3 {
        let child = stage.start(child_of(lease, "$child/ship")).await;
        worker.take(child).await;
        children.push(child);
        let next = go_on(stage, lease).await;
        lease = worker.take(next).await;
    }
    // When it is asked for, and not only when the run that goes on has ended.
    stage.store.cancel(lease.run).await.unwrap();
    let steer = stage.store.steer().unwrap();
    while steer.cascade().await.unwrap() {}
    for child in children {
        assert!(stage.run(child).await.cancel_at.is_some());
    }
    assert_eq!(stage.run(detached).await.cancel_at, None);
    stage.settle(lease, End::Cancelled).await.unwrap();
    while steer.cascade().await.unwrap() {}
    let before = stage.snapshot().await;
    assert!(!steer.cascade().await.unwrap());
    assert!(!worker.sweep().await.more);
    stage.assert_unchanged(&before).await;
}

async fn go_on(stage: &Stage, lease: Lease) -> RunId {
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(2), undelivered: Vec::new() };
    stage.settle(lease, end).await.unwrap();
    next
}
