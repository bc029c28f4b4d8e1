//! What the SQLite store does with a transaction: the repeat, the stale lease, and the neighbours
//! in its commit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use onward::conformance::stage::{Worker, assert_lost, done};
use onward::conformance::{LossyStore, Stage};
use onward::rusqlite::Connection;
use onward::store::{
    Answer, Error, Lease, MemoryStore, Place, RecordRef, SqliteStore, Store, Transact, Transacted,
    TransactionBody,
};
use onward::{Code, Failure, Json, RunId};

use crate::harness::Sqlite;
use crate::seat::{Seat, failed, recorded};

struct Bank {
    stage: Stage,
    worker: Worker,
    lease: Lease,
    db: Connection,
    next: AtomicU64,
}

type Body = Arc<dyn Fn(&Connection) -> Result<Json, Failure> + Send + Sync>;

impl Bank {
    async fn open() -> Self {
        let stage = Stage::open::<Sqlite>().await;
        let db = Connection::open(file(&stage)).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        db.execute_batch(
            "create table notes (text text not null);
             create table parents (id integer primary key);
             create table children (
                 parent integer references parents (id) deferrable initially deferred
             )",
        )
        .unwrap();
        let worker = stage.worker().await;
        let lease = stage.running(&worker).await;
        Self { stage, worker, lease, db, next: AtomicU64::new(1) }
    }

    fn transact(&self, step: &str, body: Body) -> (Transact, Arc<Seat>) {
        let seq = self.next.fetch_add(1, Ordering::SeqCst);
        let seat = Seat::new(seq, step);
        let transact = Transact {
            follows: Vec::new(),
            lease: self.lease,
            step: step.into(),
            body: TransactionBody::sqlite(body),
            place: Arc::clone(&seat) as Arc<dyn Place>,
            time_max: Duration::from_secs(1),
        };
        (transact, seat)
    }

    fn notes(&self) -> Vec<String> {
        let mut all = self.db.prepare("select text from notes order by rowid").unwrap();
        all.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    async fn steps(&self) -> Vec<String> {
        let history = self.stage.history(self.lease.run).await;
        history.into_iter().map(|record| record.step).collect()
    }
}

fn file(stage: &Stage) -> PathBuf {
    stage.store.sqlite_file().unwrap().to_owned()
}

fn note(text: &'static str) -> Body {
    Arc::new(move |db| {
        db.execute("insert into notes values (?1)", [text])?;
        Ok(Json::of(&text)?)
    })
}

#[tokio::test]
async fn transact_twice() {
    let bank = Bank::open().await;
    let (transact, seat) = bank.transact("pay", note("paid"));
    let first = recorded(bank.stage.store.transact(transact.clone()).await);
    let again = recorded(bank.stage.store.transact(transact).await);
    assert_eq!(first, again);
    assert_eq!(seat.placed(), 1, "the body executed once");
    assert_eq!(bank.notes(), ["paid"]);
    assert_eq!(bank.steps().await, ["pay"]);
}

#[tokio::test]
async fn transact_with_stale_lease() {
    let bank = Bank::open().await;
    let sweeper = bank.stage.worker().await;
    let (early, _) = bank.transact("pay", note("paid"));
    recorded(bank.stage.store.transact(early.clone()).await);
    bank.stage.lose(&bank.worker, &sweeper).await;
    let (late, seat) = bank.transact("refund", note("refunded"));
    assert_lost(bank.stage.store.transact(late.clone()).await);
    // Nor does it get another's record for its own: the run goes on elsewhere.
    let held = sweeper.take(bank.lease.run).await;
    let theirs = Transact { lease: held, ..late.clone() };
    bank.stage.store.record(held, vec![done(9, "refund", 1)].into()).await.unwrap();
    assert_lost(bank.stage.store.transact(late).await);
    assert_eq!(recorded(bank.stage.store.transact(theirs).await).seq, 9);
    // What was its own stays known.
    assert_eq!(recorded(bank.stage.store.transact(early).await).step, "pay");
    assert_eq!(seat.placed(), 0, "no body executed");
    assert_eq!(bank.notes(), ["paid"]);
}

/// The store went back to an earlier state: what the body rests on is not there.
#[tokio::test]
async fn a_transaction_behind_what_is_gone_is_refused() {
    let bank = Bank::open().await;
    bank.stage.record(bank.lease, vec![done(1, "ocr", 1)]).await.unwrap();
    bank.next.store(2, Ordering::SeqCst);
    let (mut transact, seat) = bank.transact("pay", note("paid"));
    let of = |step: &str| RecordRef { seq: 1, step: step.into() };
    transact.follows = vec![of("ocr"), of("gone")];
    let answer = bank.stage.store.transact(transact.clone()).await;
    assert!(matches!(answer, Err(Error::HistoryLost)), "{answer:?}");
    assert_eq!((seat.placed(), bank.notes().len()), (0, 0), "no body executed");
    transact.follows = vec![of("ocr")];
    recorded(bank.stage.store.transact(transact.clone()).await);
    transact.follows = vec![of("gone")];
    assert_eq!(
        recorded(bank.stage.store.transact(transact).await).step,
        "pay",
        "it is there itself"
    );
    assert_eq!(bank.notes(), ["paid"]);
}

#[tokio::test]
async fn lost_answer_of_a_transact() {
    let bank = Bank::open().await;
    let store = LossyStore::around(Arc::clone(&bank.stage.store));
    let (transact, _) = bank.transact("pay", note("paid"));
    store.lose_next_transactions(2);
    store.transact(transact.clone()).await.unwrap_err();
    store.transact(transact.clone()).await.unwrap_err();
    recorded(store.transact(transact).await);
    assert_eq!((bank.notes(), bank.steps().await), (vec!["paid".into()], vec!["pay".into()]));
}

#[tokio::test]
async fn a_transaction_that_nobody_waits_for_leaves_nothing() {
    let bank = Bank::open().await;
    let (transact, seat) = bank.transact("pay", note("paid"));
    seat.leave();
    let answer = bank.stage.store.transact(transact).await.unwrap();
    assert_eq!(answer, Transacted::Unwanted);
    assert_eq!(seat.placed(), 0, "the body was not executed");
    // Dropped while the body executes.
    let (transact, seat) = bank.transact("refund", note("refunded"));
    let drop = Arc::clone(&seat);
    let body: Body = Arc::new(move |db| {
        drop.leave();
        db.execute("insert into notes values ('dropped')", ())?;
        Ok(Json::of(&())?)
    });
    let transact =
        Transact { follows: Vec::new(), body: TransactionBody::sqlite(body), ..transact };
    assert_eq!(bank.stage.store.transact(transact).await.unwrap(), Transacted::Unwanted);
    assert_eq!(bank.notes(), [""; 0]);
    assert_eq!(bank.steps().await, [""; 0]);
}

/// Executes bad bodies between good ones and ordinary writes, all in one commit or nearly so.
/// Every good one is kept once, and each bad one fails by itself.
async fn amid_neighbours(bank: &Bank, bad: Vec<Body>) -> Vec<Failure> {
    let gate = Arc::new(Mutex::new(()));
    let shut = gate.lock().unwrap();
    let behind = Arc::clone(&gate);
    let waits: Body = Arc::new(move |_| {
        drop(behind.lock());
        Ok(Json::of(&())?)
    });
    let store = &bank.stage.store;
    // It holds the writer until everything else is queued, so that the rest is one batch.
    let first =
        store.transact(Transact { time_max: Duration::MAX, ..bank.transact("gate", waits).0 });
    let mut writes: Vec<Answer<'_, Transacted>> = Vec::new();
    let mut records = Vec::new();
    writes.push(store.transact(bank.transact("good first", note("good first")).0));
    for (number, body) in bad.into_iter().enumerate() {
        records.push(store.record(
            bank.lease,
            vec![done(100 + number as u64, &format!("plain {number}"), 1)].into(),
        ));
        writes.push(store.transact(bank.transact(&format!("bad {number}"), body).0));
    }
    writes.push(store.transact(bank.transact("good last", note("good last")).0));
    drop(shut);
    recorded(first.await);
    for answer in join_all(records).await {
        answer.unwrap();
    }
    let mut answers = join_all(writes).await;
    assert_eq!(recorded(answers.remove(0)).step, "good first");
    assert_eq!(recorded(answers.pop().unwrap()).step, "good last");
    let plain = bank.steps().await.into_iter().filter(|step| step.starts_with("plain")).count();
    assert_eq!(plain, answers.len());
    assert_eq!(bank.notes(), ["good first", "good last"]);
    answers.into_iter().map(failed).collect()
}

fn codes(failures: &[Failure]) -> Vec<&str> {
    failures.iter().map(|failure| failure.code.as_str()).collect()
}

#[tokio::test]
async fn a_failing_body_is_undone_alone() {
    let bank = Bank::open().await;
    let fails: Body = Arc::new(|db| {
        db.execute("insert into notes values ('bad')", ())?;
        Err(Failure::fatal("no").code("declined"))
    });
    let panics: Body = Arc::new(|db| {
        db.execute("insert into notes values ('bad')", ())?;
        panic!("at once")
    });
    let failures = amid_neighbours(&bank, vec![fails, panics]).await;
    assert_eq!(codes(&failures), ["declined", "panic"]);
    assert_eq!(failures[1].message, "at once");
}

#[tokio::test]
async fn a_body_cannot_end_the_transaction() {
    let bank = Bank::open().await;
    let ends = |sql: &'static str| -> Body {
        Arc::new(move |db| {
            db.execute("insert into notes values ('bad')", ())?;
            let _ = db.execute_batch(sql);
            // After a rollback each statement would be a transaction of its own.
            let _ = db.execute("insert into notes values ('worse')", ());
            Ok(Json::of(&())?)
        })
    };
    let bodies = vec![
        ends("commit"),
        ends("rollback"),
        ends("rollback; begin"),
        ends("insert or rollback into parents values (1), (1)"),
    ];
    let failures = amid_neighbours(&bank, bodies).await;
    assert_eq!(codes(&failures), ["transaction_ended"; 4]);
    assert!(failures.iter().all(|failure| !failure.retryable));
}

#[tokio::test]
async fn a_body_may_have_savepoints_of_its_own() {
    let bank = Bank::open().await;
    let body: Body = Arc::new(|db| {
        db.execute_batch(
            "savepoint one; insert into notes values ('undone'); rollback to one; release one;
             savepoint two; insert into notes values ('kept')",
        )?;
        Ok(Json::of(&())?)
    });
    recorded(bank.stage.store.transact(bank.transact("pay", body).0).await);
    assert_eq!(bank.notes(), ["kept"]);
}

#[tokio::test]
async fn a_body_that_takes_too_long_is_undone() {
    let bank = Bank::open().await;
    let endless = "with recursive n (i) as (select 1 union all select i + 1 from n)";
    let reads: Body = Arc::new(move |db| {
        db.execute("insert into notes values ('bad')", ())?;
        let sum: i64 =
            db.query_row(&format!("{endless} select sum(i) from n"), (), |row| row.get(0))?;
        Ok(Json::of(&sum)?)
    });
    // An interrupted write takes the whole transaction with it.
    let writes: Body = Arc::new(move |db| {
        db.execute(&format!("insert into notes {endless} select 'bad' from n"), ())?;
        Ok(Json::of(&())?)
    });
    let sleeps: Body = Arc::new(move |db| {
        db.execute("insert into notes values ('bad')", ())?;
        std::thread::sleep(Duration::from_millis(1_300));
        Ok(Json::of(&())?)
    });
    let failures = amid_neighbours(&bank, vec![reads, writes, sleeps]).await;
    assert_eq!(codes(&failures), ["transaction_timeout"; 3]);
    assert!(failures.iter().all(|failure| failure.retryable));
}

#[tokio::test]
async fn a_deferred_foreign_key_fails_its_own_body() {
    let bank = Bank::open().await;
    let orphan: Body = Arc::new(|db| {
        db.execute("insert into children values (7)", ())?;
        Ok(Json::of(&())?)
    });
    let failures = amid_neighbours(&bank, vec![orphan]).await;
    assert!(failures[0].message.contains("FOREIGN KEY"), "{}", failures[0]);
    assert!(!bank.steps().await.contains(&"bad 0".to_owned()));
}

#[tokio::test]
async fn another_store_refuses_a_sqlite_transaction() {
    let bank = Bank::open().await;
    let answer = MemoryStore::new().transact(bank.transact("pay", note("paid")).0).await;
    assert_eq!(failed(answer).code, Code::TransactionUnsupported.as_str());
}

/// A body may own the last handle on its store, and is dropped by the store's own thread.
#[tokio::test]
async fn a_store_may_be_dropped_by_its_own_writer() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path().join("onward.db")).unwrap());
    let owned = Arc::clone(&store);
    let body: Body = Arc::new(move |_| {
        let _ = owned.sqlite_file();
        Ok(Json::of(&())?)
    });
    let lease = Lease { run: RunId::new(), worker: onward::WorkerId::new(), attempt: 1 };
    let transact = Transact {
        follows: Vec::new(),
        lease,
        step: "pay".into(),
        body: TransactionBody::sqlite(body),
        place: Seat::new(1, "pay"),
        time_max: Duration::from_secs(1),
    };
    let answer = store.transact(transact);
    drop(answer);
    let (weak, deadline) =
        (Arc::downgrade(&store), std::time::Instant::now() + Duration::from_secs(10));
    drop(store);
    while weak.strong_count() > 0 {
        assert!(std::time::Instant::now() < deadline, "the store is never dropped");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
