//! Records: each step's result once, from the holder only.

use tokio::task::JoinSet;

use super::stage::*;
use crate::store::{Conflict, End, Error, Settle};
use crate::{Entry, Failure};

/// What is recorded is there, in order and word for word.
pub async fn records_are_kept_as_written(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let failure = Failure::retry_after(std::time::Duration::from_secs(9), "rate limited");
    let failure = failure.code("busy").details(&["eu", "us"]);
    let mut written = vec![
        entry(1, "ocr", Entry::TryFailed { failure: failure.clone(), next_at: stage.in_ms(200) }),
        entry(2, "mail", Entry::Began),
        entry(5, "$sleep", Entry::Fired),
        entry(6, "pay", Entry::Failed(failure)),
        done(9, "naïve ☃", -1),
    ];
    written[0].foreign = true;
    written[4].try_number = 3;
    written[4].undoable = true;
    stage.record(lease, written.clone()).await.unwrap();
    assert_eq!(stage.history(lease.run).await, written);
}

/// A record that is repeated is there once.
pub async fn record_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let records = vec![done(1, "ocr", 1), done(2, "pay", 2)];
    stage.record(lease, records.clone()).await.unwrap();
    let before = stage.snapshot().await;
    stage.record(lease, records).await.unwrap();
    stage.assert_unchanged(&before).await;
}

/// A repeat that brings a further record adds only that one.
pub async fn record_again_with_more_adds_the_rest(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    stage.record(lease, vec![done(1, "ocr", 1), done(2, "pay", 2)]).await.unwrap();
    assert_eq!(steps(&stage.history(lease.run).await), [(1, "ocr"), (2, "pay")]);
}

/// A worker that was marked lost records nothing.
pub async fn record_with_stale_lease(stage: &Stage) {
    let (lease, new) = stage.stale().await;
    let before = stage.snapshot().await;
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    stage.assert_unchanged(&before).await;
    new.take(lease.run).await;
    let before = stage.snapshot().await;
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    stage.assert_unchanged(&before).await;
}

/// A worker that holds the run again cannot record under its earlier attempt.
pub async fn record_of_an_earlier_attempt_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let old = stage.settled(&worker, End::Released).await;
    let new = worker.take(old.run).await;
    let before = stage.snapshot().await;
    assert_lost(stage.record(old, vec![done(1, "ocr", 1)]).await);
    stage.assert_unchanged(&before).await;
    stage.record(new, vec![done(1, "ocr", 1)]).await.unwrap();
}

/// The old holder's repeat of a record that is there gets `Ok`, after a new claim and the end.
pub async fn late_repeat_of_a_record_is_known(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    let written = vec![done(1, "ocr", 1)];
    stage.record(lease, written.clone()).await.unwrap();
    stage.lose(&old, &new).await;
    stage.record(lease, written.clone()).await.unwrap();
    let again = new.take(lease.run).await;
    let before = stage.snapshot().await;
    stage.record(lease, written.clone()).await.unwrap();
    stage.assert_unchanged(&before).await;
    stage.settle(again, End::Completed(json(1))).await.unwrap();
    stage.record(lease, written).await.unwrap();
}

/// The old holder's record that differs from what is there is a lost lease, not a conflict.
pub async fn late_record_that_differs_is_refused(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    stage.lose(&old, &new).await;
    new.take(lease.run).await;
    let before = stage.snapshot().await;
    assert_lost(stage.record(lease, vec![done(1, "ocr", 2)]).await);
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1), done(2, "pay", 1)]).await);
    stage.assert_unchanged(&before).await;
}

/// The new holder's record never passes for the old one's, even where they are alike.
pub async fn same_record_of_another_attempt_is_not_mine(stage: &Stage) {
    let (lease, new) = stage.stale().await;
    let again = new.take(lease.run).await;
    stage.record(again, vec![done(1, "ocr", 1)]).await.unwrap();
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    assert_eq!(stage.history(lease.run).await[0].attempt, 2);
}

/// Two workers that finish one step: the holder's result stands, the other is told.
pub async fn two_holders_cannot_finish_one_step(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker().await);
    let stale = stage.running(&old).await;
    stage.lose(&old, &new).await;
    let held = new.take(stale.run).await;
    let mut writers = JoinSet::new();
    for (store, lease, value) in [(&stage.store, stale, 1), (&stage.other, held, 2)] {
        let store = store.clone();
        writers.spawn(async move {
            (value, store.record(lease, vec![done(1, "ocr", value)].into()).await)
        });
    }
    for (value, answer) in writers.join_all().await {
        match value {
            1 => assert_lost(answer),
            _ => answer.unwrap(),
        }
    }
    let history = stage.history(stale.run).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].entry, Entry::Done(json(2)));
}

/// A second final result of one step is refused, and nothing of that write is kept.
pub async fn second_result_of_a_step_is_refused_whole(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    let before = stage.snapshot().await;
    let clash = Conflict::Record { run: lease.run };
    let write = vec![done(2, "pay", 2), done(3, "ocr", 1)];
    assert_conflict(stage.record(lease, write).await, clash);
    let write = vec![done(2, "pay", 2), failed(3, "pay")];
    assert_conflict(stage.record(lease, write).await, clash);
    stage.assert_unchanged(&before).await;
}

/// A second record of a step in one place is refused, and nothing of that write is kept.
pub async fn second_record_in_one_place_is_refused_whole(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![tried(1, "ocr", "down")]).await.unwrap();
    let before = stage.snapshot().await;
    let write = vec![done(2, "pay", 2), tried(1, "ocr", "slow")];
    assert_conflict(stage.record(lease, write).await, Conflict::Record { run: lease.run });
    stage.assert_unchanged(&before).await;
}

/// Two records in one place of one write are refused, alike or not.
pub async fn one_place_twice_in_one_write_is_refused_whole(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let before = stage.snapshot().await;
    for (first, second) in [(1, 1), (1, 2)] {
        let write = vec![done(1, "ocr", first), done(1, "ocr", second)];
        assert_conflict(stage.record(lease, write).await, Conflict::Record { run: lease.run });
        stage.assert_unchanged(&before).await;
    }
}

/// A settle whose records clash is refused whole: the run is still held.
pub async fn settle_with_a_clash_is_refused_whole(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    let before = stage.snapshot().await;
    let records = vec![done(2, "pay", 1), done(3, "ocr", 9)];
    let settle = Settle::new(records, End::Completed(json(1)));
    let answer = stage.store.settle(lease, settle).await;
    assert_conflict(answer, Conflict::Record { run: lease.run });
    stage.assert_unchanged(&before).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
}

/// A failed try does not end its step: the next try may.
pub async fn failed_tries_precede_one_result(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![tried(1, "ocr", "down")]).await.unwrap();
    stage.record(lease, vec![tried(2, "ocr", "down"), done(3, "ocr", 1)]).await.unwrap();
    assert_eq!(stage.history(lease.run).await.len(), 3);
}

/// One bad write fails its own caller, and none of those that came with it.
pub async fn refused_record_leaves_its_neighbours(stage: &Stage) {
    let worker = stage.worker().await;
    let mut writers = JoinSet::new();
    for number in 0..30 {
        let lease = stage.running(&worker).await;
        let store = stage.store.clone();
        let bad = number % 3 == 0;
        writers.spawn(async move {
            let second = if bad { done(2, "ocr", 2) } else { done(2, "pay", 2) };
            (bad, lease, store.record(lease, vec![done(1, "ocr", 1), second].into()).await)
        });
    }
    for (bad, lease, answer) in writers.join_all().await {
        match answer {
            Ok(()) => assert!(!bad),
            Err(Error::Conflict(Conflict::Record { run })) => assert!(bad && run == lease.run),
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(stage.history(lease.run).await.len(), if bad { 0 } else { 2 });
    }
}

/// A run that ended accepts no record, whatever its end.
pub async fn ended_run_accepts_no_record(stage: &Stage) {
    let worker = stage.worker().await;
    for end in [End::Completed(json(1)), failed_at("pay"), End::Cancelled] {
        let lease = stage.settled(&worker, end).await;
        assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
        assert!(stage.history(lease.run).await.is_empty());
    }
}

/// A record on a run that does not exist is a lost lease.
pub async fn record_on_an_unknown_run_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let unknown = crate::store::Lease { run: crate::RunId::new(), ..lease };
    assert_lost(stage.record(unknown, vec![done(1, "ocr", 1)]).await);
    assert_lost(stage.settle(unknown, End::Completed(json(1))).await);
}
