//! What the Postgres store does with a transaction: the repeat, the stale lease, and a body that
//! fails, ends it, keeps it or takes too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use onward::conformance::stage::{Worker, assert_lost, done};
use onward::conformance::{LossyStore, Stage};
use onward::store::{
    Error, Lease, MemoryStore, Place, PostgresBody, PostgresStore, PostgresTransaction, RecordRef,
    Store, Transact, Transacted, TransactionBody,
};
use onward::{Code, Ctx, Failure, Json, Onward, Workflow};

use crate::database::{self, Schema, connect};
use crate::harness::Postgres;
use crate::seat::{Seat, failed, recorded};

struct Bank {
    stage: Stage,
    worker: Worker,
    lease: Lease,
    db: tokio_postgres::Client,
    table: String,
    next: AtomicU64,
    _own: Schema,
}

impl Bank {
    async fn open() -> Self {
        let stage = Stage::open::<Postgres>().await;
        let db = connect().await;
        let own = Schema::new();
        let table = format!("{}.notes", own.0);
        let ddl = format!(
            "create schema {0}; create table {0}.notes (text text not null);
             create table {0}.parents (id integer primary key);
             create table {0}.children (
                 parent integer references {0}.parents (id) deferrable initially deferred
             );
             create table {0}.singles (id integer unique deferrable initially deferred);
             create table {0}.watched (code text);
             create function {0}.watch() returns trigger language plpgsql as $$
             begin
                 raise 'could not commit: not yours' using errcode = new.code;
             end $$;
             create constraint trigger watch after insert on {0}.watched
             deferrable initially deferred for each row execute function {0}.watch()",
            own.0
        );
        db.batch_execute(&ddl).await.unwrap();
        let worker = stage.worker().await;
        let lease = stage.running(&worker).await;
        Self { stage, worker, lease, db, table, next: AtomicU64::new(1), _own: own }
    }

    fn transact(&self, step: &str, body: PostgresBody) -> (Transact, Arc<Seat>) {
        let seat = Seat::new(self.next.fetch_add(1, Ordering::SeqCst), step);
        let transact = Transact {
            follows: Vec::new(),
            lease: self.lease,
            step: step.into(),
            body: TransactionBody::postgres(body),
            place: Arc::clone(&seat) as Arc<dyn Place>,
            time_max: Duration::from_secs(2),
        };
        (transact, seat)
    }

    /// A body that writes a note and then does this.
    fn body<F, Fut>(&self, text: &'static str, then: F) -> PostgresBody
    where
        F: Fn(PostgresTransaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Json, Failure>> + Send + 'static,
    {
        let insert = format!("insert into {} values ($1)", self.table);
        let then = Arc::new(then);
        Arc::new(move |db| {
            let (insert, then) = (insert.clone(), Arc::clone(&then));
            Box::pin(async move {
                db.execute(&insert, &[&text]).await?;
                then(db).await
            })
        })
    }

    fn note(&self, text: &'static str) -> PostgresBody {
        self.body(text, move |_| async move { Ok(Json::of(&text)?) })
    }

    async fn notes(&self) -> Vec<String> {
        let rows = self.db.query(&format!("select text from {}", self.table), &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn steps(&self) -> Vec<String> {
        let history = self.stage.history(self.lease.run).await;
        history.into_iter().map(|record| record.step).collect()
    }

    /// Executes a body that must fail and leave nothing, and gives its failure.
    async fn fails(&self, body: PostgresBody) -> Failure {
        let answer = self.stage.store.transact(self.transact("bad", body).0).await;
        let failure = failed(answer);
        assert_eq!((self.notes().await, self.steps().await), (vec![], vec![]), "{failure}");
        failure
    }
}

fn unit() -> Result<Json, Failure> {
    Ok(Json::of(&())?)
}

#[tokio::test]
async fn transact_twice() {
    let bank = Bank::open().await;
    let (transact, seat) = bank.transact("pay", bank.note("paid"));
    let first = recorded(bank.stage.store.transact(transact.clone()).await);
    let again = recorded(bank.stage.store.transact(transact).await);
    assert_eq!((first.seq, &first.entry), (again.seq, &again.entry));
    assert_eq!(seat.placed(), 1, "the body executed once");
    assert_eq!((bank.notes().await, bank.steps().await), (vec!["paid".into()], vec!["pay".into()]));
}

/// The store went back to an earlier state: what the body rests on is not there, and what it wrote is undone.
#[tokio::test]
async fn a_transaction_behind_what_is_gone_is_undone() {
    let bank = Bank::open().await;
    bank.stage.record(bank.lease, vec![done(1, "ocr", 1)]).await.unwrap();
    bank.next.store(2, Ordering::SeqCst);
    let (mut transact, _) = bank.transact("pay", bank.note("paid"));
    let of = |step: &str| RecordRef { seq: 1, step: step.into() };
    transact.follows = vec![of("ocr"), of("gone")];
    let answer = bank.stage.store.transact(transact.clone()).await;
    assert!(matches!(answer, Err(Error::HistoryLost)), "{answer:?}");
    assert!(bank.notes().await.is_empty());
    transact.follows = vec![of("ocr")];
    recorded(bank.stage.store.transact(transact.clone()).await);
    transact.follows = vec![of("gone")];
    assert_eq!(
        recorded(bank.stage.store.transact(transact).await).step,
        "pay",
        "it is there itself"
    );
    assert_eq!(bank.notes().await, ["paid"]);
}

#[tokio::test]
async fn transact_twice_at_once() {
    let bank = Bank::open().await;
    let (transact, _) = bank.transact("pay", bank.note("paid"));
    let store = &bank.stage.store;
    let (one, other) = tokio::join!(store.transact(transact.clone()), store.transact(transact));
    assert_eq!(recorded(one).seq, recorded(other).seq);
    assert_eq!((bank.notes().await, bank.steps().await), (vec!["paid".into()], vec!["pay".into()]));
}

#[tokio::test]
async fn transact_with_stale_lease() {
    let bank = Bank::open().await;
    let sweeper = bank.stage.worker().await;
    let (early, _) = bank.transact("pay", bank.note("paid"));
    recorded(bank.stage.store.transact(early.clone()).await);
    bank.stage.lose(&bank.worker, &sweeper).await;
    let (late, seat) = bank.transact("refund", bank.note("refunded"));
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
    assert_eq!(bank.notes().await, ["paid"]);
}

/// With a fence that is only looked at before the body, the record would come after the loss.
#[tokio::test]
async fn a_worker_lost_while_its_body_executes_commits_nothing() {
    let bank = Bank::open().await;
    let sweeper = bank.stage.worker().await;
    let (inside, go_on) =
        (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (here, gate) = (Arc::clone(&inside), Arc::clone(&go_on));
    let body = bank.body("paid", move |_| {
        let (here, gate) = (Arc::clone(&here), Arc::clone(&gate));
        async move {
            here.notify_one();
            gate.notified().await;
            unit()
        }
    });
    let (transact, _) = bank.transact("pay", body);
    let transact = Transact { time_max: Duration::from_secs(20), ..transact };
    let store = Arc::clone(&bank.stage.store);
    let paying = tokio::spawn(async move { store.transact(transact).await });
    inside.notified().await;
    bank.stage.lose(&bank.worker, &sweeper).await;
    go_on.notify_one();
    assert_lost(paying.await.unwrap());
    sweeper.take(bank.lease.run).await;
    assert_eq!((bank.notes().await, bank.steps().await), (vec![], vec![]));
}

#[tokio::test]
async fn lost_answer_of_a_transact() {
    let bank = Bank::open().await;
    let store = LossyStore::around(Arc::clone(&bank.stage.store));
    let (transact, _) = bank.transact("pay", bank.note("paid"));
    store.lose_next_transactions(2);
    store.transact(transact.clone()).await.unwrap_err();
    store.transact(transact.clone()).await.unwrap_err();
    recorded(store.transact(transact).await);
    assert_eq!((bank.notes().await, bank.steps().await), (vec!["paid".into()], vec!["pay".into()]));
}

#[tokio::test]
async fn a_transaction_that_nobody_waits_for_leaves_nothing() {
    let bank = Bank::open().await;
    let (transact, seat) = bank.transact("pay", bank.note("paid"));
    seat.leave();
    assert_eq!(bank.stage.store.transact(transact).await.unwrap(), Transacted::Unwanted);
    let (transact, _) = bank.transact("refund", bank.note("refunded"));
    let place = Seat::new(9, "refund");
    let dropped = Arc::clone(&place);
    let body = bank.body("dropped", move |_| {
        dropped.leave();
        async { unit() }
    });
    let transact = Transact { body: TransactionBody::postgres(body), place, ..transact };
    assert_eq!(bank.stage.store.transact(transact).await.unwrap(), Transacted::Unwanted);
    assert_eq!((bank.notes().await, bank.steps().await), (vec![], vec![]));
}

#[tokio::test]
async fn a_failing_body_is_undone() {
    let bank = Bank::open().await;
    let declined = bank.body("bad", |_| async { Err(Failure::fatal("no").code("declined")) });
    assert_eq!(bank.fails(declined).await.code, "declined");
    let panics = bank.body("bad", |_| async { panic!("at once") });
    let failure = bank.fails(panics).await;
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("panic", "at once"));
}

#[tokio::test]
async fn a_body_cannot_end_the_transaction() {
    let bank = Bank::open().await;
    for sql in ["rollback", "rollback; begin"] {
        let ends = bank.body("bad", move |db| async move {
            db.batch_execute(sql).await?;
            unit()
        });
        assert_eq!(bank.fails(ends).await.code, Code::TransactionEnded.as_str(), "{sql}");
    }
    // What it committed itself cannot be taken back, but no record says that it was the step's.
    let commits = bank.body("bad", |db| async move {
        db.batch_execute("commit").await?;
        unit()
    });
    let failure = failed(bank.stage.store.transact(bank.transact("bad", commits).0).await);
    assert_eq!(failure.code, Code::TransactionEnded.as_str());
    assert!(bank.steps().await.is_empty());
}

#[tokio::test]
async fn a_body_cannot_keep_the_transaction() {
    let bank = Bank::open().await;
    let kept = Arc::new(std::sync::Mutex::new(None));
    let place = Arc::clone(&kept);
    let keeps = bank.body("bad", move |db| {
        *place.lock().unwrap() = Some(db);
        async { unit() }
    });
    assert_eq!(bank.fails(keeps).await.code, Code::TransactionEnded.as_str());
    // Its own failure says more.
    let place = Arc::clone(&kept);
    let fails = bank.body("bad", move |db| {
        *place.lock().unwrap() = Some(db);
        async { Err(Failure::fatal("no").code("declined")) }
    });
    assert_eq!(bank.fails(fails).await.code, "declined");
    drop(kept);
}

#[tokio::test]
async fn a_body_may_have_savepoints_of_its_own() {
    let bank = Bank::open().await;
    let table = bank.table.clone();
    let body = bank.body("kept", move |db| {
        let sql = format!("savepoint one; insert into {table} values ('no'); rollback to one");
        async move {
            db.batch_execute(&sql).await?;
            unit()
        }
    });
    recorded(bank.stage.store.transact(bank.transact("pay", body).0).await);
    assert_eq!(bank.notes().await, ["kept"]);
}

#[tokio::test]
async fn a_body_that_takes_too_long_is_undone() {
    let bank = Bank::open().await;
    let sleeps = bank.body("bad", |_| async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        unit()
    });
    assert_eq!(bank.fails(sleeps).await.code, Code::TransactionTimeout.as_str());
    let waits = bank.body("bad", |db| async move {
        db.batch_execute("select pg_sleep(60)").await?;
        unit()
    });
    bank.fails(waits).await;
}

/// A body that ends its own session, so many times.
fn ends_its_session(bank: &Bank, times: u32) -> (PostgresBody, Arc<AtomicU32>) {
    let executed = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&executed);
    let body = bank.body("bad", move |db| {
        let before = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if before < times {
                db.batch_execute("select pg_terminate_backend(pg_backend_pid())").await?;
            }
            unit()
        }
    });
    (body, executed)
}

/// Fails where the store's own lost connection takes one of the step's tries, and its run with the last.
#[tokio::test]
async fn a_body_whose_connection_is_lost_is_executed_again() {
    let bank = Bank::open().await;
    let (body, executed) = ends_its_session(&bank, 1);
    recorded(bank.stage.store.transact(bank.transact("pay", body).0).await);
    assert_eq!(executed.load(Ordering::SeqCst), 2);
    assert_eq!((bank.notes().await, bank.steps().await), (vec!["bad".into()], vec!["pay".into()]));
}

/// Fails where a body that ends its session each time is executed for ever.
#[tokio::test]
async fn a_body_that_ends_its_session_again_and_again_fails() {
    let bank = Bank::open().await;
    let (body, executed) = ends_its_session(&bank, u32::MAX);
    bank.fails(body).await;
    assert_eq!(executed.load(Ordering::SeqCst), 4);
}

/// Fails where a body that kept its thread past the limit is told of the connection that the server ended
/// for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_body_that_blocks_too_long_is_told_of_the_limit() {
    let bank = Bank::open().await;
    let blocks = bank.body("bad", |db| async move {
        std::thread::sleep(Duration::from_secs(2));
        db.batch_execute("select 1").await?;
        unit()
    });
    assert_eq!(bank.fails(blocks).await.code, Code::TransactionTimeout.as_str());
}

#[tokio::test]
async fn an_error_that_a_body_passes_over_undoes_it() {
    let bank = Bank::open().await;
    let passes = bank.body("bad", |db| async move {
        let _ = db.batch_execute("select 1 / 0").await;
        unit()
    });
    bank.fails(passes).await;
}

/// Fails where a server that cannot commit, or whose operator cancels it, takes one of the step's tries.
#[tokio::test]
async fn a_commit_that_the_server_does_not_make_is_an_outage() {
    for code in ["XX000", "57014", "57P01"] {
        let bank = Bank::open().await;
        let sql =
            format!("insert into {} values ('{code}')", bank.table.replace("notes", "watched"));
        let body = bank.body("bad", move |db| {
            let sql = sql.clone();
            async move {
                db.batch_execute(&sql).await?;
                unit()
            }
        });
        let answer = bank.stage.store.transact(bank.transact("bad", body).0).await;
        assert!(matches!(answer, Err(Error::Unavailable(..))), "{code}: {answer:?}");
        assert_eq!((bank.notes().await, bank.steps().await), (vec![], vec![]));
    }
}

/// Fails where the commit's error is read like a statement's: there a row that is there twice, or a
/// right that is missing, means that the same again may succeed.
#[tokio::test]
async fn a_deferred_constraint_fails_its_own_body() {
    let bank = Bank::open().await;
    let broken = [
        ("children values (7)", "foreign key"),
        ("singles values (1), (1)", "duplicate key"),
        ("watched values ('42501')", "not yours"),
    ];
    for (rows, why) in broken {
        let sql = format!("insert into {}", bank.table.replace("notes", rows));
        let body = bank.body("bad", move |db| {
            let sql = sql.clone();
            async move {
                db.batch_execute(&sql).await?;
                unit()
            }
        });
        let (transact, seat) = bank.transact("bad", body);
        let failure = failed(bank.stage.store.transact(transact).await);
        assert!(failure.message.contains(why), "{failure}");
        assert_eq!(seat.placed(), 1, "{why}: executed once");
        assert_eq!((bank.notes().await, bank.steps().await), (vec![], vec![]), "{failure}");
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_a_body() {
    let bank = Bank::open().await;
    let store = Arc::clone(&bank.stage.store);
    let run = bank.lease.run;
    let body = bank.body("paid", move |_| {
        let store = Arc::clone(&store);
        async move {
            store.cancel(run).await.map_err(|error| Failure::new(error.to_string()))?;
            unit()
        }
    });
    recorded(bank.stage.store.transact(bank.transact("pay", body).0).await);
    assert!(bank.stage.run(run).await.cancel_at.is_some());
}

#[tokio::test]
async fn another_store_refuses_a_postgres_transaction() {
    let bank = Bank::open().await;
    let answer = MemoryStore::new().transact(bank.transact("pay", bank.note("paid")).0).await;
    assert_eq!(failed(answer).code, Code::TransactionUnsupported.as_str());
}

const TRANSFER: Workflow<(String, i64), i64> = Workflow::named("transfer");

async fn transfer(ctx: Ctx, (accounts, cents): (String, i64)) -> Result<i64, Failure> {
    let moved = ctx.postgres_transaction("move the money", move |db, step| {
        let add = format!("update {accounts} set cents = cents + $1 where id = $2 returning cents");
        async move {
            assert_eq!(step.try_number(), 1);
            let left: i64 = db.query_one(&add, &[&-cents, &1]).await?.get(0);
            if left < 0 {
                return Err(Failure::fatal("too little money").code("overdrawn"));
            }
            db.query_one(&add, &[&cents, &2]).await?;
            Ok(left)
        }
    });
    moved.await
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_moved_once_whatever_answers_are_lost() {
    let schema = Schema::new();
    let own = Schema::new();
    let db = connect().await;
    let accounts = format!("{}.accounts", own.0);
    let ddl = format!(
        "create schema {}; create table {accounts} (id integer primary key, cents bigint not null);
         insert into {accounts} values (1, 1000), (2, 0)",
        own.0
    );
    db.batch_execute(&ddl).await.unwrap();
    let store = PostgresStore::open_with(&database::url(), schema.options()).await.unwrap();
    let lossy = Arc::new(LossyStore::around(Arc::new(store)));
    let onward = Onward::with_store(Arc::clone(&lossy) as Arc<dyn Store>);
    let worker = onward.worker().serve(TRANSFER, transfer).start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..20 {
        let run = onward.start(TRANSFER, &(accounts.clone(), 10)).key(format!("t-{number}"));
        runs.push(run.await.unwrap());
        lossy.lose_next_transactions(1);
    }
    for run in &runs {
        run.result().await.unwrap();
    }
    let too_much = onward.start(TRANSFER, &(accounts.clone(), 5_000)).await.unwrap();
    assert!(too_much.result().await.unwrap_err().failure().unwrap().is("overdrawn"));
    let rows = db.query(&format!("select cents from {accounts} order by id"), &[]).await.unwrap();
    let cents: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(cents, [800, 200]);
    worker.shutdown().await.unwrap();
}
