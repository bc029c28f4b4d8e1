//! Keys: the same key is the same run, from any number of callers.

use tokio::task::JoinSet;

use super::stage::*;
use crate::limits::DUPLICATES_KEPT_MAX;
use crate::store::{Conflict, End, NewKey, NewRun, StartedHow};
use crate::{OnConflict, RunState};

/// Callers that start with one key at the same moment, through two handles.
const CALLERS: usize = 50;

/// Fifty callers with one key get one run.
pub async fn concurrent_starts_with_one_key_make_one_run(stage: &Stage) {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let store = if caller % 2 == 0 { &stage.store } else { &stage.other };
        let store = store.clone();
        callers.spawn(async move {
            let run = keyed("order-1", 1, OnConflict::Existing);
            store.start(vec![run]).await.unwrap().remove(0).unwrap()
        });
    }
    let answers = callers.join_all().await;
    let made = answers.iter().filter(|started| started.how == StartedHow::New).count();
    assert_eq!(made, 1, "one caller made the run");
    assert!(answers.iter().all(|started| started.run == answers[0].run), "all got the same");
    let run = stage.run(answers[0].run).await;
    assert_eq!(run.duplicates, CALLERS as u64 - 1);
    assert_eq!(stage.snapshot().await.runs.len(), 1);
}

/// A key with the same input gives the run that has it.
pub async fn same_key_and_input_is_the_same_run(stage: &Stage) {
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    stage.pass(10);
    let again = stage.try_start(keyed("order-1", 1, OnConflict::Existing)).await.unwrap();
    assert_eq!((again.run, again.how), (run, StartedHow::Existing));
    assert_eq!(again.at, stage.run(run).await.created_at);
    assert_eq!(stage.by_key("order-1").await, Some(run));
}

/// A key with another input is refused, and the answer names the run that has it.
pub async fn same_key_with_another_input_is_refused(stage: &Stage) {
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let other = stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await;
    assert_conflict(other, Conflict::KeyInput { run });
    let other = stage.try_start(keyed("order-1", 2, OnConflict::RetryFailed)).await;
    assert_conflict(other, Conflict::KeyInput { run });
    assert_eq!(stage.snapshot().await.runs.len(), 1);
}

/// A key belongs to its workflow: another workflow has its own.
pub async fn same_key_of_another_workflow_is_another_run(stage: &Stage) {
    let first = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let other = keyed("order-1", 2, OnConflict::Existing);
    let other = stage.start(NewRun { workflow: "refund".into(), ..other }).await;
    assert_ne!(first, other);
    assert_eq!(stage.by_key("order-1").await, Some(first));
}

/// Keys are compared byte by byte: case and space at an end count.
pub async fn keys_are_compared_exactly(stage: &Stage) {
    for key in ["order-1", "Order-1", "order-1 ", "ordér-1", "order_1", "order%1"] {
        let started = stage.try_start(keyed(key, 1, OnConflict::Existing)).await.unwrap();
        assert_eq!(started.how, StartedHow::New, "{key:?} is a key of its own");
    }
}

/// Two starts with one key in one batch are one run.
pub async fn one_key_twice_in_a_batch_is_one_run(stage: &Stage) {
    let batch =
        vec![keyed("order-1", 1, OnConflict::Existing), keyed("order-1", 1, OnConflict::Existing)];
    let answers = stage.store.start(batch).await.unwrap();
    let how: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().how).collect();
    assert_eq!(how, [StartedHow::New, StartedHow::Existing]);
    assert_eq!(answers[0].as_ref().unwrap().run, answers[1].as_ref().unwrap().run);
}

/// Of two starts with one key and other inputs the first in the batch is started, however many stand
/// between them and in whatever order.
pub async fn first_of_a_key_in_a_batch_is_started(stage: &Stage) {
    // 31 and 64 have no common factor: every key comes, in no order, and then all of them again.
    let keys: Vec<_> = (0..64).map(|number| format!("order-{}", number * 31 % 64)).collect();
    let starts = |input: i64| {
        keys.iter().map(move |key| keyed(key, input, OnConflict::Existing)).collect::<Vec<_>>()
    };
    let first = starts(1);
    let batch = [first.clone(), starts(2)].concat();
    let answers = stage.store.start(batch).await.unwrap();
    for (place, (answer, run)) in answers.into_iter().zip(first.iter().chain(&first)).enumerate() {
        match place < first.len() {
            true => assert_eq!(answer.unwrap().run, run.id),
            false => assert_conflict(answer, Conflict::KeyInput { run: run.id }),
        }
    }
}

/// `Reject` refuses a key in use, whatever the input.
pub async fn reject_refuses_the_same_input_too(stage: &Stage) {
    let run = stage.start(keyed("order-1", 1, OnConflict::Reject)).await;
    let again = stage.try_start(keyed("order-1", 1, OnConflict::Reject)).await;
    assert_conflict(again, Conflict::KeyTaken { run });
    let other = stage.try_start(keyed("order-1", 2, OnConflict::Reject)).await;
    assert_conflict(other, Conflict::KeyTaken { run });
}

/// A run that ended keeps its key.
pub async fn finished_run_keeps_its_key(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    stage.settle(lease, End::Completed(json(7))).await.unwrap();
    stage.pass(1_000_000_000);
    let again = stage.try_start(keyed("order-1", 1, OnConflict::Existing)).await.unwrap();
    assert_eq!((again.run, again.how), (run, StartedHow::Existing));
    assert_eq!(stage.state(run).await, RunState::Completed);
}

/// `RetryFailed` continues a failed run from the step that failed.
pub async fn retry_failed_continues_a_failed_run(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    stage.record(lease, vec![done(1, "ocr", 1), failed(2, "pay")]).await.unwrap();
    stage.settle(lease, failed_at("pay")).await.unwrap();
    let again = stage.try_start(keyed("order-1", 1, OnConflict::RetryFailed)).await.unwrap();
    assert_eq!((again.run, again.how), (run, StartedHow::Retried));
    let claimed = worker.take_whole(run).await;
    assert_eq!(steps(&claimed.history), [(1, "ocr")]);
    assert_eq!(claimed.run.duplicates, 0);
}

/// A `RetryFailed` start that is repeated retries nothing and counts nothing.
pub async fn retry_failed_start_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(run).await;
    stage.settle(lease, failed_at("pay")).await.unwrap();
    let retry = keyed("order-1", 1, OnConflict::RetryFailed);
    let first = stage.try_start(retry.clone()).await.unwrap();
    let before = stage.snapshot().await;
    assert_eq!(stage.try_start(retry).await.unwrap(), first);
    stage.assert_unchanged(&before).await;
}

/// `RetryFailed` gives any run that has not failed as it is.
pub async fn retry_failed_leaves_other_runs_alone(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let retry = || keyed("order-1", 1, OnConflict::RetryFailed);
    let queued = stage.try_start(retry()).await.unwrap();
    assert_eq!((queued.run, queued.how), (run, StartedHow::Existing));
    let lease = worker.take(run).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    let completed = stage.try_start(retry()).await.unwrap();
    assert_eq!((completed.run, completed.how), (run, StartedHow::Existing));
    assert_eq!(stage.state(run).await, RunState::Completed);
}

/// A key that expired is free, and the run that had it stays.
pub async fn expired_key_is_free_and_its_run_stays(stage: &Stage) {
    let first = with_ttl(keyed("order-1", 1, OnConflict::Existing), 1_000);
    let old = stage.start(first).await;
    stage.pass(999);
    let again = stage.try_start(keyed("order-1", 1, OnConflict::Existing)).await.unwrap();
    assert_eq!(again.run, old, "the key holds until its time");
    stage.pass(2);
    assert_eq!(stage.by_key("order-1").await, None);
    let new = stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await.unwrap();
    assert_eq!(new.how, StartedHow::New);
    assert_eq!(stage.by_key("order-1").await, Some(new.run));
    assert_eq!(stage.state(old).await, RunState::Queued);
    assert_eq!(stage.run(old).await.key.as_deref(), Some("order-1"));
}

/// Duplicates are counted, and those with another input are told apart.
pub async fn duplicates_are_counted_and_told_apart(stage: &Stage) {
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let from = |caller: &str, input, on_conflict| {
        let caller = caller.to_owned();
        NewRun { caller, ..keyed("order-1", input, on_conflict) }
    };
    stage.try_start(from("web", 1, OnConflict::Existing)).await.unwrap();
    stage.pass(10);
    stage.try_start(from("backfill", 2, OnConflict::Existing)).await.unwrap_err();
    stage.pass(10);
    stage.try_start(from("cron", 1, OnConflict::Reject)).await.unwrap_err();
    let duplicates = stage.store.duplicates(run).await.unwrap();
    let told: Vec<_> = (duplicates.latest.iter())
        .map(|duplicate| (duplicate.caller.as_str(), duplicate.same_input))
        .collect();
    assert_eq!(told, [("cron", true), ("backfill", false), ("web", true)]);
    assert_eq!((duplicates.count, stage.run(run).await.duplicates), (3, 3));
    assert_eq!(duplicates.latest[0].at, stage.now());
}

/// A duplicate start that is repeated is counted once, refused or not.
pub async fn duplicate_start_twice(stage: &Stage) {
    stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let same = keyed("order-1", 1, OnConflict::Existing);
    let other = keyed("order-1", 2, OnConflict::Existing);
    let first = stage.try_start(same.clone()).await.unwrap();
    stage.try_start(other.clone()).await.unwrap_err();
    let before = stage.snapshot().await;
    stage.pass(5);
    assert_eq!(stage.try_start(same).await.unwrap(), first);
    stage.try_start(other).await.unwrap_err();
    stage.assert_unchanged(&before).await;
}

/// Duplicates are kept up to a limit; the count goes on past it.
pub async fn duplicates_kept_are_bounded(stage: &Stage) {
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let many = DUPLICATES_KEPT_MAX + 5;
    let from = |caller: usize| {
        let caller = caller.to_string();
        NewRun { caller, ..keyed("order-1", 1, OnConflict::Existing) }
    };
    stage.store.start((0..many).map(from).collect()).await.unwrap();
    let duplicates = stage.store.duplicates(run).await.unwrap();
    assert_eq!(duplicates.count, many as u64);
    assert_eq!(duplicates.latest.len(), DUPLICATES_KEPT_MAX);
    assert_eq!(duplicates.latest[0].caller, (many - 1).to_string(), "the newest is first");
    assert_eq!(duplicates.latest[DUPLICATES_KEPT_MAX - 1].caller, "5", "the oldest went");
}

fn with_ttl(run: NewRun, ttl_ms: i64) -> NewRun {
    let key = run.key.map(|key| NewKey { ttl_ms: Some(ttl_ms), ..key });
    NewRun { key, ..run }
}
