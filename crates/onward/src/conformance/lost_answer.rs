//! Lost answers: a write whose answer was lost, repeated, ends where a single write ends.
//!
//! Each case does the write through a [`LossyStore`], looks at what it left, repeats it, and
//! finds the same. The clock moves between the two, as it does for a caller that waits.

use super::LossyStore;
use super::stage::*;
use crate::store::{
    Answer, Claimed, End, Error, Import, Imported, NewRun, Outage, Prune, Settle, Settled,
    StartedHow, Store,
};
use crate::{OnConflict, RunId, RunState};

/// A start whose answer was lost is told that its run is new.
pub async fn lost_answer_of_a_start(stage: &Stage) {
    let worker = stage.worker().await;
    let plain = keyed("order-1", 1, OnConflict::Reject);
    let claimed = NewRun { claimant: worker.claimant(), ..new_run() };
    let batch = vec![plain, claimed];
    let answers = repeated(stage, |store| store.start(batch.clone())).await;
    let how: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().how).collect();
    assert_eq!(how, [StartedHow::New, StartedHow::Claimed]);
}

/// A join whose answer was lost joins once.
pub async fn lost_answer_of_a_join(stage: &Stage) {
    let worker = Worker::new(stage.store.clone(), BUILD);
    repeated(stage, |store| store.join(worker.entry())).await;
    worker.renew().await.unwrap();
}

/// A renewal whose answer was lost is renewed from the later call.
pub async fn lost_answer_of_a_renewal(stage: &Stage) {
    let worker = stage.worker().await;
    let store = lossy(stage);
    store.lose_next(1);
    assert_no_answer(store.renew(worker.id).await);
    stage.pass(5);
    let renewed = store.renew(worker.id).await.unwrap();
    assert_eq!(renewed.until, stage.in_ms(LEASE_MS as u64));
}

/// A leave whose answer was lost queues its runs once.
pub async fn lost_answer_of_a_leave(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    repeated(stage, |store| store.leave(worker.id)).await;
    assert_eq!(stage.state(lease.run).await, RunState::Queued);
}

/// A claim whose answer was lost gets the same runs, and takes no others.
pub async fn lost_answer_of_a_claim(stage: &Stage) {
    let worker = stage.worker().await;
    let (one, two) = (stage.start(new_run()).await, stage.start(new_run()).await);
    stage.start(new_run()).await;
    let claim = worker.next_claim(2);
    let claims = repeated(stage, |store| store.claim(claim.clone())).await;
    let mut runs = ids(&claims);
    runs.sort();
    assert_eq!(runs, [one, two]);
    assert!(claims.runs.iter().all(|Claimed { lease, .. }| lease.attempt == 1));
}

/// A record whose answer was lost is there once.
pub async fn lost_answer_of_a_record(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let records = vec![done(1, "ocr", 1), done(2, "pay", 2)];
    repeated(stage, |store| store.record(lease, records.clone().into())).await;
    assert_eq!(stage.history(lease.run).await, records);
}

/// A record whose answer was lost, and whose worker was lost before the repeat, is still known.
pub async fn lost_answer_of_a_record_before_a_loss(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    let store = lossy(stage);
    store.lose_next(1);
    assert_no_answer(store.record(lease, vec![done(1, "ocr", 1)].into()).await);
    stage.lose(&old, &live).await;
    store.record(lease, vec![done(1, "ocr", 1)].into()).await.unwrap();
    assert_lost(store.record(lease, vec![done(2, "pay", 1)].into()).await);
    assert_eq!(steps(&live.take_whole(lease.run).await.history), [(1, "ocr")]);
}

/// A settle whose answer was lost settles once, however it ends.
pub async fn lost_answer_of_a_settle(stage: &Stage) {
    let worker = stage.worker().await;
    let ends = [
        End::Completed(json(1)),
        failed_at("pay"),
        End::Cancelled,
        End::Continued { run: RunId::new(), input: json(2), undelivered: Vec::new() },
        parked_until(Some(stage.in_ms(60_000)), 0),
        stuck(0),
    ];
    for (priority, end) in (0..).zip(ends) {
        let run = stage.start(NewRun { priority, ..new_run() }).await;
        let lease = worker.take(run).await;
        let settle = Settle::new(vec![done(1, "ocr", 1)], end);
        let settled = repeated(stage, |store| store.settle(lease, settle.clone())).await;
        assert_eq!(settled, Settled::AsSaid);
    }
}

/// A release whose answer was lost does not take the run from the next holder.
pub async fn lost_answer_of_a_release(stage: &Stage) {
    let (one, two) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&one).await;
    let store = lossy(stage);
    store.lose_next(1);
    assert_no_answer(store.settle(lease, release()).await);
    let held = two.take(lease.run).await;
    assert_eq!(store.settle(lease, release()).await.unwrap(), Settled::AsSaid);
    stage.settle(held, End::Completed(json(1))).await.unwrap();
}

/// A park that found the run woken gives that answer again.
pub async fn lost_answer_of_a_park_that_was_woken(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.store.cancel(lease.run).await.unwrap();
    let settle = Settle::new(vec![done(1, "ocr", 1)], parked(0));
    let settled = repeated(stage, |store| store.settle(lease, settle.clone())).await;
    assert_eq!(settled, Settled::Queued);
}

/// A cancel whose answer was lost cancels once.
pub async fn lost_answer_of_a_cancel(stage: &Stage) {
    let worker = stage.worker().await;
    let running = stage.running(&worker).await.run;
    repeated(stage, |store| store.cancel(running)).await;
    let queued = stage.start(new_run()).await;
    repeated(stage, |store| store.cancel(queued)).await;
}

/// A retry whose answer was lost retries once.
pub async fn lost_answer_of_a_retry(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, failed_at("pay")).await.run;
    let run = repeated(stage, |store| store.retry(run)).await;
    assert_eq!(run.state, RunState::Queued);
}

/// A sweep whose answer was lost counts no second crash.
pub async fn lost_answer_of_a_sweep(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.pass(LEASE_MS as u64 + 1);
    live.renew().await.unwrap();
    repeated(stage, |store| store.sweep(live.next_sweep())).await;
    assert_eq!(stage.run(lease.run).await.crashes, 1);
}

/// A prune whose answer was lost deletes nothing further.
pub async fn lost_answer_of_a_prune(stage: &Stage) {
    let worker = stage.worker().await;
    stage.settled(&worker, End::Completed(json(1))).await;
    stage.running(&worker).await;
    let states = RunState::ALL.to_vec();
    let prune = Prune { older_than_ms: 0, states, limit: 10, dry_run: false };
    repeated(stage, |store| store.prune(prune.clone())).await;
    assert_eq!(stage.snapshot().await.runs.len(), 1);
}

/// An import whose answer was lost adds each run once.
pub async fn lost_answer_of_an_import(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let source = stage.reference();
    source.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let runs = source.store.portable().unwrap().export(None, 10).await.unwrap();
    let import = Import { runs, dry_run: false };
    let imported = repeated(stage, |store| store.portable().unwrap().import(import.clone())).await;
    assert_eq!(imported, Imported { new: 0, there: 1 });
}

/// Does a write whose answer is lost, repeats it, and asserts that the repeat changed nothing.
pub(super) async fn repeated<T, F>(stage: &Stage, write: F) -> T
where
    T: std::fmt::Debug,
    F: for<'a> Fn(&'a LossyStore) -> Answer<'a, T>,
{
    let store = lossy(stage);
    store.lose_next(1);
    assert_no_answer(write(&store).await);
    let before = stage.snapshot().await;
    stage.pass(5);
    let answer = write(&store).await.unwrap();
    stage.assert_unchanged(&before).await;
    answer
}

fn release() -> Settle {
    Settle::new(Vec::new(), End::Released)
}

fn assert_no_answer<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let lost = matches!(answer, Err(Error::Unavailable(Outage::NoAnswer, _)));
    assert!(lost, "the answer is lost: {answer:?}");
}

fn lossy(stage: &Stage) -> LossyStore {
    LossyStore::around(stage.store.clone())
}

/// A signal whose answer was lost is kept once.
pub async fn lost_answer_of_a_signal(stage: &Stage) {
    let run = stage.start(new_run()).await;
    let signal = super::signal::new_signal(run, "go", 1);
    let sent = repeated(stage, |store| store.signal(signal.clone())).await;
    assert_eq!((sent.no, sent.was_there), (1, true));
    assert_eq!(stage.run(run).await.signals, 1);
}
