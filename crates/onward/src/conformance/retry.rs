//! Retrying a failed or stuck run.

use super::stage::*;
use crate::store::{Conflict, End, Error, NewRun, Settle, StartAt};
use crate::{Entry, Failure, RunId, RunState};

/// A retry queues a failed run and voids, visibly, what ended it.
pub async fn retry_voids_the_failure_that_ended_the_run(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let tried = Entry::TryFailed { failure: Failure::new("down"), next_at: stage.now() };
    let records = vec![done(1, "ocr", 1), entry(2, "pay", tried), failed(3, "pay")];
    let settle = Settle::new(records, failed_at("pay"));
    stage.store.settle(lease, settle).await.unwrap();
    stage.pass(5);
    let run = stage.store.retry(lease.run).await.unwrap();
    assert_eq!(run, stage.run(lease.run).await);
    assert_eq!((run.state, run.retried_at), (RunState::Queued, Some(stage.now())));
    assert_eq!((run.failure, run.finished_at), (None, None));
    let history = stage.history(lease.run).await;
    let voided: Vec<_> = history.iter().map(|record| record.voided_at).collect();
    assert_eq!(voided, [None, Some(stage.now()), Some(stage.now())]);
    assert_eq!(steps(&worker.take_whole(lease.run).await.history), [(1, "ocr")]);
}

/// A voided step may get its one result.
pub async fn retried_step_is_recorded_again(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let settle = Settle::new(vec![failed(1, "pay")], failed_at("pay"));
    stage.store.settle(lease, settle).await.unwrap();
    stage.store.retry(lease.run).await.unwrap();
    let again = worker.take(lease.run).await;
    stage.record(again, vec![done(2, "pay", 1)]).await.unwrap();
    let clash = stage.record(again, vec![done(3, "pay", 1)]).await;
    assert_conflict(clash, Conflict::Record { run: lease.run });
    let clash = stage.record(again, vec![tried(1, "pay", "in the place of the voided one")]).await;
    assert_conflict(clash, Conflict::Record { run: lease.run });
}

/// A run that failed without a step is retried with its whole history.
pub async fn retry_without_a_failed_step_voids_nothing(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    let end = End::Failed { failure: Failure::fatal("no"), step: None };
    stage.settle(lease, end).await.unwrap();
    stage.store.retry(lease.run).await.unwrap();
    assert_eq!(steps(&worker.take_whole(lease.run).await.history), [(1, "ocr")]);
}

/// A retried run gets its full timeout again, from each retry on, since it may have failed because its
/// time was over. So does a run that continues another.
pub async fn retried_run_has_its_whole_time_again(stage: &Stage) {
    let worker = stage.worker().await;
    let start_at = StartAt::After(1_000);
    let run = stage.start(NewRun { start_at, timeout_ms: Some(100), ..new_run() }).await;
    stage.pass(1_000);
    for _ in 0..2 {
        let lease = worker.take(run).await;
        stage.pass(70);
        stage.settle(lease, failed_at("pay")).await.unwrap();
        stage.pass(7);
        let retried = stage.store.retry(run).await.unwrap();
        assert_eq!(retried.deadline_at, Some(stage.in_ms(100)));
        assert_eq!(retried, stage.run(run).await);
    }
    let next = RunId::new();
    stage.pass(60);
    let end = End::Continued { run: next, input: json(2), undelivered: Vec::new() };
    stage.settle(worker.take(run).await, end).await.unwrap();
    assert_eq!(stage.run(next).await.deadline_at, Some(stage.in_ms(40)));
    stage.settle(worker.take(next).await, failed_at("pay")).await.unwrap();
    let retried = stage.store.retry(next).await.unwrap();
    assert_eq!(retried.deadline_at, Some(stage.in_ms(100)));
}

/// A retry that is repeated, before or after the next claim, changes nothing.
pub async fn retry_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, failed_at("pay")).await.run;
    let first = stage.store.retry(run).await.unwrap();
    let before = stage.snapshot().await;
    stage.pass(5);
    assert_eq!(stage.store.retry(run).await.unwrap(), first);
    stage.assert_unchanged(&before).await;
    worker.take(run).await;
    let before = stage.snapshot().await;
    assert_eq!(stage.store.retry(run).await.unwrap().state, RunState::Running);
    stage.assert_unchanged(&before).await;
}

/// A retry of a run that is neither failed nor stuck is refused.
pub async fn retry_of_a_run_that_did_not_fail_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let mut runs = vec![];
    for end in [End::Completed(json(1)), End::Cancelled, parked(0)] {
        runs.push(stage.settled(&worker, end).await.run);
    }
    runs.push(stage.running(&worker).await.run);
    runs.push(stage.start(new_run()).await);
    let before = stage.snapshot().await;
    for run in runs {
        assert_conflict(stage.store.retry(run).await, Conflict::NotFailed { run });
    }
    stage.assert_unchanged(&before).await;
}

/// A retry is no longer known as a repeat once the attempt after it has settled.
pub async fn retry_is_forgotten_after_the_next_settle(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, failed_at("pay")).await.run;
    stage.store.retry(run).await.unwrap();
    let lease = worker.take(run).await;
    stage.settle(lease, End::Released).await.unwrap();
    assert_eq!(stage.run(run).await.retried_at, None);
    assert_conflict(stage.store.retry(run).await, Conflict::NotFailed { run });
}

/// A run that failed again can be retried again.
pub async fn run_that_fails_again_is_retried_again(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, failed_at("pay")).await.run;
    for seq in 1..4 {
        stage.store.retry(run).await.unwrap();
        let lease = worker.take(run).await;
        let settle = Settle::new(vec![failed(seq, "pay")], failed_at("pay"));
        stage.store.settle(lease, settle).await.unwrap();
        assert_eq!(stage.state(run).await, RunState::Failed);
    }
    let voided = stage.history(run).await.iter().filter(|r| r.voided_at.is_some()).count();
    assert_eq!(voided, 2, "the latest failure stands");
}

/// A retry of a run that does not exist says so.
pub async fn retry_of_an_unknown_run_says_so(stage: &Stage) {
    let answer = stage.store.retry(crate::RunId::new()).await;
    assert!(matches!(answer, Err(Error::NotFound)), "{answer:?}");
}
