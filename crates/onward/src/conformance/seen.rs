//! Retrying a run only if it stands as it was seen.
//!
//! A store that cannot be steered passes by having no answer.

use super::stage::*;
use crate::store::{Conflict, End, Error, Seen};
use crate::{Code, Failure, RunId, RunState};

async fn seen(stage: &Stage, run: RunId) -> Seen {
    Seen { run, wakes: stage.run(run).await.wakes }
}

fn failed() -> End {
    End::Failed { failure: Failure::fatal("no"), step: None }
}

/// A run that stands as it was seen is retried, as by any retry.
pub async fn retry_of_a_run_as_it_was_seen(stage: &Stage) {
    let Some(steer) = stage.store.steer() else { return };
    let worker = stage.worker().await;
    let run = stage.settled(&worker, failed()).await.run;
    assert!(steer.retry_seen(seen(stage, run).await).await.unwrap());
    let retried = stage.run(run).await;
    assert_eq!((retried.state, retried.retried_at), (RunState::Queued, Some(stage.now())));
    worker.take(run).await;
}

/// A retry that is repeated does nothing, before and after the next claim, and when the run has failed
/// again: it may have been retried for what was seen.
pub async fn retry_seen_twice(stage: &Stage) {
    let Some(steer) = stage.store.steer() else { return };
    let worker = stage.worker().await;
    let run = stage.settled(&worker, failed()).await.run;
    let seen = seen(stage, run).await;
    assert!(steer.retry_seen(seen).await.unwrap());
    let unmoved = async || {
        let before = stage.snapshot().await;
        stage.pass(5);
        assert!(!steer.retry_seen(seen).await.unwrap());
        stage.assert_unchanged(&before).await;
    };
    unmoved().await;
    let lease = worker.take(run).await;
    unmoved().await;
    stage.settle(lease, failed()).await.unwrap();
    unmoved().await;
    assert_eq!(stage.run(run).await.state, RunState::Failed);
}

/// A stuck run is retried by whoever saw it as it stands, and then goes on.
pub async fn retry_of_a_stuck_run_as_it_was_seen(stage: &Stage) {
    let Some(steer) = stage.store.steer() else { return };
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let code = Code::HistoryMismatch;
    let wakes_seen = stage.run(lease.run).await.wakes;
    let stuck = End::Stuck { code, detail: "x".to_owned(), wakes_seen };
    stage.settle(lease, stuck).await.unwrap();
    let early = Seen { run: lease.run, wakes: seen(stage, lease.run).await.wakes + 1 };
    assert!(!steer.retry_seen(early).await.unwrap());
    assert!(steer.retry_seen(seen(stage, lease.run).await).await.unwrap());
    assert_eq!(stage.run(lease.run).await.state, RunState::Queued);
}

/// What allows no retry says so, as to any retry.
pub async fn retry_seen_of_what_allows_none_is_refused(stage: &Stage) {
    let Some(steer) = stage.store.steer() else { return };
    let worker = stage.worker().await;
    let done = stage.settled(&worker, End::Completed(json(1))).await.run;
    let refused = steer.retry_seen(seen(stage, done).await).await;
    assert_conflict(refused, Conflict::NotFailed { run: done });
    let nobody = Seen { run: RunId::new(), wakes: 0 };
    assert!(matches!(steer.retry_seen(nobody).await, Err(Error::NotFound)));
}
