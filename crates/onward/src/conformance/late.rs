//! Deadlines of runs that nobody holds, and of children: a sweep ends runs that no worker can claim.

use super::stage::*;
use crate::limits::LATE_BATCH_MAX;
use crate::model::step_id::UNDO;
use crate::store::{End, Lease, NewParent, NewRun, Pause, Settle, StartAt, Store};
use crate::{Code, Entry, Record, RunId, RunState, Waits};

const TIMEOUT_MS: u64 = 1_000;

/// A run that no worker on the stage serves.
fn unserved() -> NewRun {
    NewRun { queue: "elsewhere".to_owned(), ..timed() }
}

fn timed() -> NewRun {
    NewRun { timeout_ms: Some(TIMEOUT_MS as i64), ..new_run() }
}

/// The record of a step that was asked for with an undo.
fn undoable(seq: u64, step: &str) -> Record {
    Record { undoable: true, ..done(seq, step, 1) }
}

/// A run with a deadline that has this record and was let go.
async fn released(stage: &Stage, worker: &Worker, record: Record) -> Lease {
    let lease = worker.take(stage.start(timed()).await).await;
    stage.store.settle(lease, Settle::new(vec![record], End::Released)).await.unwrap();
    lease
}

async fn assert_failed_late(stage: &Stage, run: RunId) {
    let run = stage.run(run).await;
    assert_eq!((run.state, run.finished_at), (RunState::Failed, Some(stage.now())), "{run:?}");
    assert!(run.failure.unwrap().is(Code::DeadlineExceeded.as_str()));
    assert_eq!((run.due_at, run.waits_for, run.paused_at), (None, None, None));
}

/// A run that failed before anybody took it, and is retried, has had no attempt.
pub async fn late_run_that_never_began_has_no_attempt(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(timed()).await;
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    assert_failed_late(stage, run).await;
    stage.store.retry(run).await.unwrap();
    let lease = worker.take(run).await;
    stage.settle(lease, End::Released).await.unwrap();
    let builds: Vec<u32> = worker.take_whole(run).await.builds.into_keys().collect();
    assert_eq!(builds, [lease.attempt]);
}

/// A run that nobody serves fails at its deadline, and not before.
pub async fn late_run_that_nobody_serves_fails(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(unserved()).await;
    let delayed = NewRun { start_at: StartAt::After(500), ..unserved() };
    let delayed = stage.start(delayed).await;
    stage.pass(TIMEOUT_MS - 1);
    worker.sweep().await;
    assert_eq!(stage.state(run).await, RunState::Queued);
    stage.pass(1);
    worker.sweep().await;
    assert_failed_late(stage, run).await;
    assert_eq!(stage.state(delayed).await, RunState::Queued, "its time counts from its start");
    stage.pass(500);
    worker.sweep().await;
    assert_failed_late(stage, delayed).await;
    let before = stage.snapshot().await;
    worker.sweep().await;
    stage.assert_unchanged(&before).await;
}

/// A waiting or queued run that has begun and has nothing to undo fails too.
pub async fn late_run_with_nothing_to_undo_fails(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = released(stage, &worker, done(1, "look", 1)).await;
    let held = worker.take(lease.run).await;
    let other = worker.take(stage.start(timed()).await).await;
    stage.settle(other, parked(0)).await.unwrap();
    stage.settle(held, End::Released).await.unwrap();
    let pause = Pause { run: lease.run, caller: "ops".to_owned() };
    stage.store.steer().unwrap().pause(pause).await.unwrap();
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    for run in [lease.run, other.run] {
        assert_failed_late(stage, run).await;
    }
    assert_lost(stage.record(held, vec![done(2, "late", 1)]).await);
}

/// An attempt that lost its run has not settled it, though a sweep ended the run and it was retried.
pub async fn late_run_that_is_retried_knows_no_settle_of_a_lost_attempt(stage: &Stage) {
    let (lost, sweeper) = (stage.worker().await, stage.worker().await);
    let lease = lost.take(stage.start(timed()).await).await;
    stage.lose(&lost, &sweeper).await;
    stage.pass(TIMEOUT_MS);
    sweeper.sweep().await;
    assert_eq!(stage.state(lease.run).await, RunState::Failed);
    assert_lost(stage.settle(lease, End::Completed(json(1))).await);
    stage.store.retry(lease.run).await.unwrap();
    assert_lost(stage.settle(lease, End::Completed(json(1))).await);
    let held = sweeper.take(lease.run).await;
    assert_lost(stage.settle(lease, End::Completed(json(1))).await);
    stage.settle(held, End::Completed(json(2))).await.unwrap();
}

/// Only its holder ends a run that a worker holds.
pub async fn late_run_that_is_held_is_left_to_its_holder(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = worker.take(stage.start(timed()).await).await;
    stage.pass(TIMEOUT_MS);
    let before = stage.snapshot().await;
    worker.sweep().await;
    stage.assert_unchanged(&before).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
}

/// A run with something to undo is opened to every worker, once, and keeps waiting for one.
pub async fn late_run_with_something_to_undo_waits_for_a_worker(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = released(stage, &worker, undoable(1, "charge")).await;
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    let before = stage.snapshot().await;
    worker.sweep().await;
    stage.assert_unchanged(&before).await;
    let claimed = worker.take_whole(lease.run).await;
    assert!(claimed.run.deadline_at.is_some_and(|deadline| deadline <= stage.now()));
    stage.settle(claimed.lease, failed_at("charge")).await.unwrap();
}

/// A run that is being undone stays as it is: it waits for the next try of an undo.
pub async fn late_run_on_its_way_back_waits_as_it_does(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = worker.take(stage.start(timed()).await).await;
    let waits_for = Waits::Retry { step: "$undo/charge".to_owned(), try_number: 2 };
    let wake_at = Some(stage.in_ms(60_000));
    let end = End::Parked { wake_at, waits_for: waits_for.clone(), wakes_seen: 0 };
    let records = vec![undoable(1, "charge"), done(2, UNDO, 1)];
    stage.store.settle(lease, Settle::new(records, end)).await.unwrap();
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    let run = stage.run(lease.run).await;
    assert_eq!(
        (run.state, run.due_at, run.waits_for),
        (RunState::Waiting, wake_at, Some(waits_for))
    );
}

/// A run that is asked to end ends as cancelled, even if its time is over.
pub async fn late_cancelled_run_ends_as_cancelled(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = released(stage, &worker, done(1, "look", 1)).await;
    stage.store.cancel(lease.run).await.unwrap();
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    let claimed = worker.take_whole(lease.run).await;
    assert!(claimed.run.cancel_at.is_some());
}

/// A sweep ends a bounded number of runs and says that there are more. Runs that wait to be undone do
/// not block others.
pub async fn sweep_of_late_runs_is_bounded(stage: &Stage) {
    let worker = stage.worker().await;
    for _ in 0..LATE_BATCH_MAX {
        let run = released(stage, &worker, undoable(1, "charge")).await.run;
        // Paused, so that the next claim takes the next one.
        let pause = Pause { run, caller: "ops".to_owned() };
        stage.store.steer().unwrap().pause(pause).await.unwrap();
    }
    let runs: Vec<_> = (0..=LATE_BATCH_MAX).map(|_| unserved()).collect();
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    stage.store.start(runs).await.unwrap();
    stage.pass(TIMEOUT_MS);
    assert!(worker.sweep().await.more);
    assert!(worker.sweep().await.more);
    worker.sweep().await;
    for run in ids {
        assert_failed_late(stage, run).await;
    }
}

/// The parent of a late run is notified of its end.
pub async fn end_of_a_late_run_is_told(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let parent = NewParent { lease, step: "$child/ship".to_owned(), detached: false };
    let child = stage.start(NewRun { parent: Some(parent), ..unserved() }).await;
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    assert_failed_late(stage, child).await;
    assert_eq!(stage.store.inbox(lease.run, 0).await.unwrap().signals.len(), 1);
}

/// A child ends no later than its parent, unless it is detached or its own time is over sooner.
pub async fn child_has_no_more_time_than_its_parent(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = worker.take(stage.start(timed()).await).await;
    let free = stage.running(&worker).await;
    stage.pass(100);
    let child_of = |detached, timeout_ms| {
        let parent = NewParent { lease, step: RunId::new().to_string(), detached };
        NewRun { parent: Some(parent), timeout_ms, ..new_run() }
    };
    let of_parent = stage.run(lease.run).await.deadline_at;
    let expected = [
        (child_of(false, None), of_parent),
        (child_of(false, Some(5_000)), of_parent),
        (child_of(false, Some(50)), Some(stage.in_ms(50))),
        (child_of(true, None), None),
        (child_of(true, Some(5_000)), Some(stage.in_ms(5_000))),
    ];
    for (child, deadline_at) in expected {
        let about = format!("{child:?}");
        let child = stage.start(child).await;
        assert_eq!(stage.run(child).await.deadline_at, deadline_at, "{about}");
    }
    let parent = NewParent { lease: free, step: "a".to_owned(), detached: false };
    let own = stage.start(NewRun { parent: Some(parent), ..timed() }).await;
    assert_eq!(stage.run(own).await.deadline_at, Some(stage.in_ms(TIMEOUT_MS)));
}

/// A parent with a second of time that waits for children, 900 ms after its start. Each has this much time
/// of its own, and no more than its parent.
async fn waits_for_children(
    stage: &Stage,
    worker: &Worker,
    own: &[Option<i64>],
) -> (RunId, Vec<RunId>) {
    let lease = worker.take(stage.start(timed()).await).await;
    stage.pass(900);
    let mut children = Vec::new();
    for (number, timeout_ms) in own.iter().enumerate() {
        let step = format!("$child/ship{number}");
        let parent = NewParent { lease, step, detached: false };
        let child = NewRun { parent: Some(parent), timeout_ms: *timeout_ms, ..new_run() };
        children.push(stage.start(NewRun { queue: "elsewhere".to_owned(), ..child }).await);
    }
    stage.settle(lease, super::child::awaiting(children[0], 0)).await.unwrap();
    (lease.run, children)
}

/// A retry of a run that ran out of time retries the children that ran out of time with it, or it would
/// fail for them at once. They have their own time again, and no more than their parent.
pub async fn retry_of_a_late_parent_retries_its_late_children(stage: &Stage) {
    let worker = stage.worker().await;
    let own = [None, Some(500), Some(5_000)];
    let (parent, children) = waits_for_children(stage, &worker, &own).await;
    stage.pass(100);
    while worker.sweep().await.more {}
    for run in children.iter().chain([&parent]) {
        assert_failed_late(stage, *run).await;
    }
    stage.pass(7);
    let retried = stage.store.retry(parent).await.unwrap();
    assert_eq!(retried.deadline_at, Some(stage.in_ms(TIMEOUT_MS)));
    for (child, deadline_ms) in children.iter().zip([TIMEOUT_MS, 500, TIMEOUT_MS]) {
        let child = stage.run(*child).await;
        assert_eq!(child.state, RunState::Queued);
        assert_eq!(child.deadline_at, Some(stage.in_ms(deadline_ms)), "{child:?}");
    }
    let claimed = worker.take_whole(parent).await;
    assert_eq!(
        (claimed.history, claimed.signals),
        (vec![], vec![]),
        "what they told is taken back"
    );
}

/// A retry of a late parent leaves the children alone that failed for another reason, and those whose
/// ends it has recorded: its function knows them.
pub async fn retry_of_a_late_parent_leaves_its_other_children(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = worker.take(stage.start(timed()).await).await;
    let child_of = |step: &str, timeout_ms| {
        let parent = NewParent { lease, step: step.to_owned(), detached: false };
        NewRun { parent: Some(parent), timeout_ms, ..new_run() }
    };
    let short = child_of("$child/a", Some(10));
    let short = stage.start(NewRun { queue: "elsewhere".to_owned(), ..short }).await;
    stage.pass(10);
    worker.sweep().await;
    let told = stage.store.inbox(lease.run, 0).await.unwrap().signals.remove(0);
    let heard = entry(1, &told.recorded_as(), Entry::Arrived(told.body));
    let failed = worker.take(stage.start(child_of("$child/b", None)).await).await;
    stage.settle(failed, failed_at("pack")).await.unwrap();
    stage.store.settle(lease, Settle::new(vec![heard], End::Released)).await.unwrap();
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    stage.store.retry(lease.run).await.unwrap();
    for child in [short, failed.run] {
        assert_eq!(stage.state(child).await, RunState::Failed);
    }
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!((claimed.history.len(), claimed.signals.len()), (1, 1));
}

/// A retry of a late parent that is repeated changes nothing.
pub async fn retry_of_a_late_parent_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let (parent, _) = waits_for_children(stage, &worker, &[None]).await;
    stage.pass(100);
    while worker.sweep().await.more {}
    super::lost_answer::repeated(stage, |store| store.retry(parent)).await;
}

/// A child that is retried by itself has its own time again, each time: all of it if its parent has
/// ended, else no more than the parent.
pub async fn retried_child_has_its_own_time_again(stage: &Stage) {
    let worker = stage.worker().await;
    let own = [Some(500), Some(5_000), None];
    let (_, children) = waits_for_children(stage, &worker, &own).await;
    stage.pass(100);
    while worker.sweep().await.more {}
    for (child, own) in children.into_iter().zip(own) {
        for _ in 0..2 {
            let retried = stage.store.retry(child).await.unwrap();
            assert_eq!(retried.deadline_at, own.map(|ms| stage.in_ms(ms as u64)));
            stage.pass(5_000);
            worker.sweep().await;
        }
    }
    let lease = worker.take(stage.start(timed()).await).await;
    let parent = NewParent { lease, step: "a".to_owned(), detached: false };
    let child = NewRun { parent: Some(parent), timeout_ms: Some(50), ..unserved() };
    let child = stage.start(child).await;
    stage.pass(980);
    worker.sweep().await;
    assert_failed_late(stage, child).await;
    let retried = stage.store.retry(child).await.unwrap();
    assert_eq!(retried.deadline_at, Some(stage.in_ms(20)), "its parent has no more");
}
