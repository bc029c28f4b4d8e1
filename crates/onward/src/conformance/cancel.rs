//! Cancelling, and how it meets every state of a run.

use super::stage::*;
use crate::RunState;
use crate::store::{Conflict, End, Error, NewRun, StartAt};

/// A queued run with nothing recorded ends at once.
pub async fn cancelled_queued_run_ends_at_once(stage: &Stage) {
    let run = stage.start(new_run()).await;
    stage.pass(5);
    let cancelled = stage.store.cancel(run).await.unwrap();
    assert_eq!(cancelled, stage.run(run).await);
    assert_eq!(cancelled.state, RunState::Cancelled);
    assert_eq!(
        (cancelled.cancel_at, cancelled.finished_at),
        (Some(stage.now()), Some(stage.now()))
    );
    stage.worker().await.assert_nothing_to_claim().await;
}

/// A delayed run ends at once, and its time never wakes it.
pub async fn cancelled_delayed_run_never_wakes(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(NewRun { start_at: StartAt::After(1_000), ..new_run() }).await;
    stage.store.cancel(run).await.unwrap();
    stage.pass(2_000);
    worker.assert_nothing_to_claim().await;
    assert_eq!(stage.state(run).await, RunState::Cancelled);
}

/// A running run is marked, and only its holder ends it.
pub async fn cancelled_running_run_is_marked(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let run = stage.store.cancel(lease.run).await.unwrap();
    assert_eq!((run.state, run.cancel_at), (RunState::Running, Some(stage.now())));
    assert_eq!(run.worker, Some(worker.id));
    stage.record(lease, vec![done(1, "undo pay", 1)]).await.unwrap();
    stage.settle(lease, End::Cancelled).await.unwrap();
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.finished_at), (RunState::Cancelled, Some(stage.now())));
}

/// A waiting run with records is queued with the mark, so that a worker can undo.
pub async fn cancelled_waiting_run_is_queued_with_the_mark(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(lease, parked(0)).await.unwrap();
    let run = stage.store.cancel(lease.run).await.unwrap();
    assert_eq!((run.state, run.cancel_at), (RunState::Queued, Some(stage.now())));
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!(claimed.run.cancel_at, Some(stage.now()));
}

/// A queued run with records keeps its place in the queue, with the mark.
pub async fn cancelled_queued_run_with_records_is_marked(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(lease, End::Released).await.unwrap();
    let run = stage.store.cancel(lease.run).await.unwrap();
    assert_eq!(run.state, RunState::Queued);
    assert!(worker.take_whole(lease.run).await.run.cancel_at.is_some());
}

/// A cancel that is repeated changes nothing, in whatever state it left the run.
pub async fn cancel_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let marked = stage.running(&worker).await.run;
    let parked_run = stage.running(&worker).await;
    stage.record(parked_run, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(parked_run, parked(0)).await.unwrap();
    let queued = stage.start(new_run()).await;
    for run in [marked, parked_run.run, queued] {
        let first = stage.store.cancel(run).await.unwrap();
        let before = stage.snapshot().await;
        stage.pass(5);
        assert_eq!(stage.store.cancel(run).await.unwrap(), first);
        stage.assert_unchanged(&before).await;
    }
}

/// A cancel of a run that ended otherwise is refused.
pub async fn cancel_of_an_ended_run_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    for end in [End::Completed(json(1)), failed_at("pay")] {
        let run = stage.settled(&worker, end).await.run;
        let before = stage.snapshot().await;
        assert_conflict(stage.store.cancel(run).await, Conflict::Finished { run });
        stage.assert_unchanged(&before).await;
    }
}

/// A cancel of a run that settled as cancelled is no error.
pub async fn cancel_of_a_cancelled_run_is_no_error(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, End::Cancelled).await.run;
    let before = stage.snapshot().await;
    assert_eq!(stage.store.cancel(run).await.unwrap().state, RunState::Cancelled);
    stage.assert_unchanged(&before).await;
}

/// A cancelled run accepts no record from whoever held it.
pub async fn cancelled_run_accepts_no_record(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.settled(&worker, End::Released).await;
    stage.store.cancel(lease.run).await.unwrap();
    let before = stage.snapshot().await;
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    stage.assert_unchanged(&before).await;
}

/// A run that completes before it sees the mark stays completed.
pub async fn completion_wins_over_a_mark(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.store.cancel(lease.run).await.unwrap();
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.output), (RunState::Completed, Some(json(1))));
}

/// A mark survives the loss of the holder, and never makes the run wait as a suspect.
pub async fn mark_survives_a_lost_worker(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    stage.store.cancel(lease.run).await.unwrap();
    stage.lose(&old, &live).await;
    assert!(live.take_whole(lease.run).await.run.cancel_at.is_some());
}

/// A cancel of a run that does not exist says so.
pub async fn cancel_of_an_unknown_run_says_so(stage: &Stage) {
    let answer = stage.store.cancel(crate::RunId::new()).await;
    assert!(matches!(answer, Err(Error::NotFound)), "{answer:?}");
}
