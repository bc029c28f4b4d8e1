//! A store that went back to an earlier state: whoever writes behind what is gone is refused.

use super::stage::*;
use crate::store::{Append, End, Error, RecordRef, Settle, Settled};
use crate::{Json, Record, Timestamp, Waits};

fn named(seq: u64, step: &str) -> RecordRef {
    RecordRef { seq, step: step.into() }
}

fn behind(follows: Vec<RecordRef>, records: Vec<Record>) -> Append {
    Append { follows, records }
}

fn assert_history_lost<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::HistoryLost)), "not refused so: {answer:?}");
}

/// A record behind records that are there is added, also when the one that it follows is voided since.
pub async fn record_behind_what_is_there_is_added(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage
        .record(lease, vec![done(1, "ocr", 1), entry(2, "pay", crate::Entry::Began)])
        .await
        .unwrap();
    for (follows, record) in [
        (vec![named(1, "ocr")], done(3, "a", 3)),
        (vec![named(2, "pay")], done(4, "b", 4)),
        (vec![named(3, "a"), named(1, "ocr")], done(5, "c", 5)),
    ] {
        stage.store.record(lease, behind(follows, vec![record])).await.unwrap();
    }
    let two = behind(vec![named(5, "c")], vec![done(6, "d", 6), done(7, "e", 7)]);
    stage.store.record(lease, two).await.unwrap();
    assert_eq!(stage.history(lease.run).await.len(), 7);
    let end = Settle {
        follows: vec![named(7, "e")],
        ..Settle::new(vec![done(8, "f", 8)], End::Released)
    };
    assert_eq!(stage.store.settle(lease, end).await.unwrap(), Settled::AsSaid);
}

/// A record behind one that is not there is refused whole, and so are several, and those of a late caller
/// only where they are not there themselves.
pub async fn record_behind_what_is_gone_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    let before = stage.snapshot().await;
    for follows in [
        vec![named(2, "pay")],
        vec![named(1, "pay")],
        vec![named(2, "ocr")],
        vec![named(1, "ocr"), named(2, "pay")],
    ] {
        for records in [vec![done(3, "mail", 3)], vec![done(3, "mail", 3), done(4, "log", 4)]] {
            let append = behind(follows.clone(), records);
            assert_history_lost(stage.store.record(lease, append).await);
        }
    }
    stage.assert_unchanged(&before).await;
    // What is there itself is not asked what it follows.
    let repeat = behind(vec![named(9, "gone")], vec![done(1, "ocr", 1)]);
    stage.store.record(lease, repeat).await.unwrap();
    stage.assert_unchanged(&before).await;
}

/// No end is taken that rests on what is gone; the run can be given back all the same.
pub async fn end_behind_what_is_gone_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let waits_for = Waits::Timer { step: "t".to_owned() };
    let wake_at = Some(Timestamp::from_millis(1));
    for end in [
        End::Completed(Json::of(&1).unwrap()),
        failed_at("pay"),
        End::Cancelled,
        End::Continued {
            run: crate::RunId::new(),
            input: Json::of(&1).unwrap(),
            undelivered: vec![],
        },
        End::Parked { wake_at, waits_for, wakes_seen: 0 },
        End::Stuck { code: crate::Code::HistoryMismatch, detail: "x".to_owned(), wakes_seen: 0 },
        End::Released,
    ] {
        let before = stage.snapshot().await;
        for records in [vec![], vec![done(2, "mail", 2)]] {
            let settle =
                Settle { follows: vec![named(1, "ocr")], ..Settle::new(records, end.clone()) };
            assert_history_lost(stage.store.settle(lease, settle).await);
        }
        stage.assert_unchanged(&before).await;
    }
    stage.settle(lease, End::Released).await.unwrap();
    worker.take(lease.run).await;
}

/// Whoever lost its lease is told that, whatever it follows.
pub async fn lost_lease_comes_before_what_is_gone(stage: &Stage) {
    let (lease, _) = stage.stale().await;
    let append = behind(vec![named(1, "ocr")], vec![done(2, "mail", 2)]);
    assert_lost(stage.store.record(lease, append).await);
    let settle = Settle { follows: vec![named(1, "ocr")], ..Settle::new(vec![], End::Released) };
    assert_lost(stage.store.settle(lease, settle).await);
}

/// What is refused so leaves those alone that are written at the same time.
pub async fn what_is_behind_the_gone_leaves_its_neighbours(stage: &Stage) {
    let worker = stage.worker().await;
    let mut writes = tokio::task::JoinSet::new();
    let mut leases = Vec::new();
    for number in 0..20 {
        let lease = stage.running(&worker).await;
        leases.push(lease);
        let follows = if number % 5 == 0 { vec![named(1, "gone")] } else { vec![] };
        let (store, append) = (stage.store.clone(), behind(follows, vec![done(2, "mail", 2)]));
        writes.spawn(async move { (number, store.record(lease, append).await) });
    }
    while let Some(written) = writes.join_next().await {
        match written.unwrap() {
            (number, answer) if number % 5 == 0 => assert_history_lost(answer),
            (_, answer) => answer.unwrap(),
        }
    }
    for (number, lease) in leases.into_iter().enumerate() {
        assert_eq!(stage.history(lease.run).await.len(), usize::from(number % 5 != 0));
    }
}
