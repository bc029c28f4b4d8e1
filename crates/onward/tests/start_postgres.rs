//! Starting runs inside a user's own transaction, and from SQL.
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "database/mod.rs"]
mod database;

use std::time::Duration;

use onward::{Code, Ctx, Failure, OnConflict, Onward, RunState, Workflow};
use serde_json::{Value, json};

use database::{Schema, connect};

const SHIP: Workflow<Value, String> = Workflow::named("ship");

async fn ship(_: Ctx, order: Value) -> Result<String, Failure> {
    Ok(format!("shipped {order}"))
}

async fn shop() -> (Schema, Onward, tokio_postgres::Client) {
    let schema = Schema::new();
    let onward = Onward::open(&schema.url()).await.unwrap();
    (schema, onward, connect().await)
}

#[tokio::test]
async fn a_run_is_there_if_and_as_soon_as_its_transaction_commits() {
    let (_schema, onward, mut db) = shop().await;
    let worker = onward.worker().serve(SHIP, ship).start().await.unwrap();
    let tx = db.transaction().await.unwrap();
    let run = onward.start(SHIP, &json!(7)).key("order-7").tag("shop", "north");
    let run = run.in_postgres(&tx).await.unwrap();
    assert_eq!(run.status().await.unwrap_err().code(), Code::RunNotFound);
    tx.commit().await.unwrap();
    let done = tokio::time::timeout(Duration::from_secs(5), run.result()).await;
    assert_eq!(done.expect("the worker was woken").unwrap(), "shipped 7");
    let shown = run.status().await.unwrap();
    assert_eq!((shown.key.as_deref(), shown.tags["shop"].as_str()), (Some("order-7"), "north"));

    let tx = db.transaction().await.unwrap();
    let undone = onward.start(SHIP, &json!(8)).key("order-8").in_postgres(&tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(undone.status().await.unwrap_err().code(), Code::RunNotFound);
    let gone = onward.by_key(SHIP, "order-8").await.unwrap_err();
    assert_eq!(gone.code(), Code::KeyNotFound);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_key_means_inside_what_it_means_outside() {
    let (_schema, onward, mut db) = shop().await;
    let outside = onward.start(SHIP, &json!({"order": 1})).key("k").await.unwrap();
    let tx = db.transaction().await.unwrap();
    let start = |input| onward.start(SHIP, &input).key("k");
    let same = start(json!({"order": 1.0, "note": null})).in_postgres(&tx).await.unwrap();
    assert_eq!(same.id(), outside.id());
    let other = start(json!({"order": 2})).in_postgres(&tx).await.unwrap_err();
    assert_eq!((other.code(), other.run()), (Code::KeyConflict, Some(outside.id())));
    let reject = start(json!({"order": 1})).on_conflict(OnConflict::Reject);
    assert_eq!(reject.in_postgres(&tx).await.unwrap_err().code(), Code::KeyTaken);
    let replace = start(json!({"order": 1})).on_conflict(OnConflict::Replace);
    assert_eq!(replace.in_postgres(&tx).await.unwrap_err().code(), Code::InvalidOption);
    // The transaction goes on after a refusal.
    let new = onward.start(SHIP, &json!(2)).key("l").delay(Duration::from_secs(60));
    let new = new.in_postgres(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(new.status().await.unwrap().state, RunState::Waiting);
    let duplicates = outside.duplicates().await.unwrap();
    assert_eq!(duplicates.count, 3);
}

#[tokio::test]
async fn an_expired_key_is_free_inside_too() {
    let (_schema, onward, mut db) = shop().await;
    let ttl = Duration::from_millis(1);
    let first = onward.start(SHIP, &json!(1)).key("k").key_ttl(ttl).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let tx = db.transaction().await.unwrap();
    let second = onward.start(SHIP, &json!(2)).key("k").in_postgres(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(onward.by_key(SHIP, "k").await.unwrap().id(), second.id());
}

#[tokio::test]
async fn two_transactions_with_one_key_start_one_run() {
    let (_schema, onward, mut db) = shop().await;
    let mut other = connect().await;
    let tx = db.transaction().await.unwrap();
    let first = onward.start(SHIP, &json!(1)).key("k").in_postgres(&tx).await.unwrap();
    let late = other.transaction().await.unwrap();
    // The second waits for the first to commit, and then finds its run.
    let second = onward.start(SHIP, &json!(1)).key("k").in_postgres(&late);
    let (committed, second) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            tx.commit().await
        },
        second
    );
    committed.unwrap();
    assert_eq!(second.unwrap().id(), first.id());
    late.commit().await.unwrap();
}

#[tokio::test]
async fn another_store_refuses() {
    let mut db = connect().await;
    let tx = db.transaction().await.unwrap();
    let onward = Onward::open("memory:").await.unwrap();
    let error = onward.start(SHIP, &json!(1)).in_postgres(&tx).await.unwrap_err();
    assert_eq!(error.code(), Code::TransactionUnsupported);
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_starts_inside_its_transaction() {
    let (_schema, onward, _db) = shop().await;
    let pool = sqlx::PgPool::connect(&database::url()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let run = onward.start(SHIP, &json!({"order": 9})).key("k").tag("a", "b");
    let run = run.in_sqlx(&mut tx).await.unwrap();
    assert_eq!(run.status().await.unwrap_err().code(), Code::RunNotFound);
    let other = onward.start(SHIP, &json!(1)).key("k").in_sqlx(&mut tx).await.unwrap_err();
    assert_eq!(other.code(), Code::KeyConflict);
    tx.commit().await.unwrap();
    assert_eq!(run.status().await.unwrap().input.as_str(), r#"{"order":9}"#);
    let mut tx = pool.begin().await.unwrap();
    let undone = onward.start(SHIP, &json!(3)).in_sqlx(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(undone.status().await.unwrap_err().code(), Code::RunNotFound);
}

#[tokio::test]
async fn a_run_is_started_from_sql_and_by_a_trigger() {
    let (schema, onward, db) = shop().await;
    let worker = onward.worker().serve(SHIP, ship).start().await.unwrap();
    let name = &schema.0;
    let sql = format!(
        "create table {name}.orders (id integer primary key);
         create function {name}.ordered() returns trigger language plpgsql as $$
         begin
             perform {name}.start('ship', to_jsonb(new.id), key => 'order-' || new.id);
             return new;
         end $$;
         create trigger ordered after insert on {name}.orders
         for each row execute function {name}.ordered();
         insert into {name}.orders values (1), (2)"
    );
    db.batch_execute(&sql).await.unwrap();
    for order in [1, 2] {
        let run = onward.by_key(SHIP, format!("order-{order}")).await.unwrap();
        assert_eq!(run.result().await.unwrap(), format!("shipped {order}"));
    }
    let long = "x".repeat(600);
    for bad in ["''".to_owned(), format!("'ship', '1', key => '{long}'")] {
        let error = db.batch_execute(&format!("select {name}.start({bad})")).await.unwrap_err();
        let error = error.as_db_error().unwrap().message().to_owned();
        assert!(error.starts_with("invalid_name"), "{error}");
    }
    worker.shutdown().await.unwrap();
}

/// The database's own fingerprint is the library's, or a key used from both sides would conflict
/// with itself.
#[tokio::test]
async fn sql_and_the_library_compare_inputs_alike() {
    let (schema, onward, db) = shop().await;
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(-0.25),
        json!(1e-5),
        json!(1e-6),
        json!(1.25e-7),
        json!(123456.789),
        json!(0.1),
        json!(9007199254740993_i64),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!("plain"),
        json!("naïve ☃ \" \\ \n \t \u{1} \u{7f} /"),
        json!([]),
        json!([1, null, [2, {"a": null}], "x"]),
        json!({}),
        json!({"b": 1, "a": {"z": [1.0, 2], "y": null}, "é": "ü", "": 0, "aa": 1, "B": 2}),
    ];
    for (number, value) in values.iter().enumerate() {
        let key = format!("k-{number}");
        let ours = onward.start(SHIP, value).key(key.as_str()).await.unwrap();
        let sql = format!("select {}.start('ship', $1::text::jsonb, key => $2)::text", schema.0);
        let row = db.query_one(&sql, &[&value.to_string(), &key]).await;
        let theirs: String = row.unwrap_or_else(|e| panic!("{value}: {e:?}")).get(0);
        assert_eq!(theirs, ours.id().to_string(), "{value}");
        // And the other way round.
        let key = format!("l-{number}");
        let row = db.query_one(&sql, &[&value.to_string(), &key]).await.unwrap();
        let theirs: String = row.get(0);
        let ours = onward.start(SHIP, value).key(key.as_str()).await;
        let ours = ours.unwrap_or_else(|error| panic!("{value}: {error}"));
        assert_eq!(theirs, ours.id().to_string(), "{value}");
    }
}
