//! Signals inside a user's own transaction, and from SQL.

use std::time::Duration;

use onward::{Code, Ctx, Failure, Onward, RunState, Workflow};

use crate::database::{Schema, connect};
use crate::stores::until_state;

const WAIT: Workflow<(), u64> = Workflow::named("wait");

async fn wait(ctx: Ctx, (): ()) -> Result<u64, Failure> {
    ctx.signal::<u64>("paid").await
}

/// A parked run, and a connection of the test's own.
async fn parked(
    schema: &Schema,
) -> (Onward, onward::Worker, onward::RunHandle<u64>, tokio_postgres::Client) {
    let onward = Onward::open(&schema.url()).await.unwrap();
    let (worker, run) = parked_in(&onward).await;
    (onward, worker, run, connect().await)
}

async fn parked_in(onward: &Onward) -> (onward::Worker, onward::RunHandle<u64>) {
    let worker = onward.worker().serve(WAIT, wait).linger(Duration::from_millis(1));
    let worker = worker.start().await.unwrap();
    let run = onward.start(WAIT, &()).await.unwrap();
    until_state(&run, RunState::Waiting).await;
    (worker, run)
}

#[tokio::test]
async fn a_signal_is_sent_if_and_as_soon_as_its_transaction_commits() {
    let schema = Schema::new();
    let (_onward, worker, run, mut db) = parked(&schema).await;
    let tx = db.transaction().await.unwrap();
    run.signal("paid", &1).key("e-1").in_postgres(&tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(run.status().await.unwrap().signals, 0);

    let tx = db.transaction().await.unwrap();
    run.signal("paid", &2).key("e-1").in_postgres(&tx).await.unwrap();
    let other = run.signal("paid", &3).key("e-1").in_postgres(&tx).await.unwrap_err();
    assert_eq!(other.code(), Code::KeyConflict);
    tx.commit().await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(5), run.result()).await;
    assert_eq!(result.expect("the worker was woken").unwrap(), 2);
    let tx = db.transaction().await.unwrap();
    let late = run.signal("paid", &4).in_postgres(&tx).await.unwrap_err();
    assert_eq!((late.code(), late.run()), (Code::RunFinished, Some(run.id())));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn sqlx_signals_inside_its_transaction() {
    let schema = Schema::new();
    let (_onward, worker, run, _db) = parked(&schema).await;
    let pool = sqlx::PgPool::connect(&crate::database::url()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    run.signal("paid", &1).key("e-1").in_sqlx(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(run.status().await.unwrap().signals, 0);

    let mut tx = pool.begin().await.unwrap();
    run.signal("paid", &2).key("e-1").in_sqlx(&mut tx).await.unwrap();
    let other = run.signal("paid", &3).key("e-1").in_sqlx(&mut tx).await.unwrap_err();
    assert_eq!(other.code(), Code::KeyConflict);
    let shown = run.status().await.unwrap();
    assert_eq!((shown.signals, shown.state), (0, RunState::Waiting), "not before the commit");
    tx.commit().await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(5), run.result()).await;
    assert_eq!(result.expect("the worker was woken").unwrap(), 2);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_rolled_back_sqlite_transaction_sends_no_signal() {
    use onward::rusqlite::{Connection, TransactionBehavior};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onward.db");
    let onward = Onward::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let (worker, run) = parked_in(&onward).await;
    let mut db = Connection::open(&path).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    run.signal("paid", &1).key("e-1").in_sqlite(&tx).unwrap();
    tx.rollback().unwrap();
    let shown = run.status().await.unwrap();
    assert_eq!((shown.signals, shown.state), (0, RunState::Waiting));

    // The key is free, for another value too.
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    run.signal("paid", &2).key("e-1").in_sqlite(&tx).unwrap();
    tx.commit().unwrap();
    let result = tokio::time::timeout(Duration::from_secs(5), run.result()).await;
    assert_eq!(result.expect("the worker was woken").unwrap(), 2);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_signal_is_sent_from_sql() {
    let schema = Schema::new();
    let (_onward, worker, run, db) = parked(&schema).await;
    let call = |value: &str| {
        let (schema, run) = (&schema.0, run.id());
        format!("select {schema}.signal('{run}', 'paid', '{value}', key => 'e-1')")
    };
    for _ in 0..2 {
        let number: i64 = db.query_one(&call("7"), &[]).await.unwrap().get(0);
        assert_eq!(number, 1);
    }
    let refused = db.query_one(&call("8"), &[]).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "OW006");
    assert!(refused.message().starts_with("key_conflict"), "{refused}");
    // The library finds it the same signal.
    run.signal("paid", &7).key("e-1").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    worker.shutdown().await.unwrap();
}
