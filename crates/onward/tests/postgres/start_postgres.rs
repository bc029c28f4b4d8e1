//! Starting runs inside a user's own transaction, and from SQL.

use std::time::{Duration, Instant};

use onward::store::{Filter, Query};
use onward::tokio_postgres::IsolationLevel;
use onward::{Code, Ctx, Failure, Json, OnConflict, Onward, RunState, TestClock, Workflow};
use serde_json::{Value, json};

use crate::database::{self, Schema, connect};

const SHIP: Workflow<Value, String> = Workflow::named("ship");

/// The same, with inputs whose text is kept.
const RAW: Workflow<Json, String> = Workflow::named("ship");

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
    let (schema, clock) = (Schema::new(), TestClock::new());
    let onward = Onward::with_store(database::open(&schema, &clock).await);
    let mut db = connect().await;
    let ttl = Duration::from_secs(60);
    let first = onward.start(SHIP, &json!(1)).key("k").key_ttl(ttl).await.unwrap();
    clock.advance(ttl);
    let tx = db.transaction().await.unwrap();
    let second = onward.start(SHIP, &json!(2)).key("k").in_postgres(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(onward.by_key(SHIP, "k").await.unwrap().id(), second.id());
}

#[tokio::test]
async fn two_transactions_with_one_key_start_one_run() {
    let (schema, onward, mut db) = shop().await;
    let mut other = connect().await;
    let name = format!("late_{}", &schema.0[24..]);
    other.batch_execute(&format!("set application_name = {name}")).await.unwrap();
    let tx = db.transaction().await.unwrap();
    let first = onward.start(SHIP, &json!(1)).key("k").in_postgres(&tx).await.unwrap();
    let late = other.transaction().await.unwrap();
    // The second waits for the first to commit, and then finds its run.
    let second = onward.start(SHIP, &json!(1)).key("k").in_postgres(&late);
    let (committed, second) = tokio::join!(
        async {
            waits(&name).await;
            tx.commit().await
        },
        second
    );
    committed.unwrap();
    assert_eq!(second.unwrap().id(), first.id());
    late.commit().await.unwrap();
}

/// Returns when the connection with this name waits for a lock.
async fn waits(name: &str) {
    let db = connect().await;
    let sql = "select count(*) from pg_stat_activity
               where application_name = $1 and wait_event_type = 'Lock'";
    let end = Instant::now() + Duration::from_secs(20);
    while db.query_one(sql, &[&name]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(Instant::now() < end, "it does not wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A start has no lease to be checked, so it needs no particular isolation. What a strict one cannot
/// see is an error, as for any other statement of that transaction.
#[tokio::test]
async fn a_transaction_may_isolate_as_it_likes() {
    let (_schema, onward, mut db) = shop().await;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let tx = db.build_transaction().isolation_level(level).start().await.unwrap();
        tx.query_one("select 1", &[]).await.unwrap();
        let run = onward.start(SHIP, &json!(1)).key(format!("new {level:?}"));
        let run = run.in_postgres(&tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(run.status().await.unwrap().state, RunState::Queued);

        let tx = db.build_transaction().isolation_level(level).start().await.unwrap();
        tx.query_one("select 1", &[]).await.unwrap();
        let key = format!("unseen {level:?}");
        onward.start(SHIP, &json!(1)).key(key.as_str()).await.unwrap();
        let unseen = onward.start(SHIP, &json!(1)).key(key.as_str()).in_postgres(&tx).await;
        let unseen = unseen.unwrap_err();
        assert_eq!(unseen.code(), Code::StoreUnavailable, "{unseen}");
        assert!(unseen.is_retryable(), "in a transaction that is made again");
    }
}

#[tokio::test]
async fn another_store_refuses() {
    let mut db = connect().await;
    let tx = db.transaction().await.unwrap();
    let onward = Onward::open("memory:").await.unwrap();
    let error = onward.start(SHIP, &json!(1)).in_postgres(&tx).await.unwrap_err();
    assert_eq!(error.code(), Code::TransactionUnsupported);
}

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
    worker.shutdown().await.unwrap();
}

/// With one SQLSTATE, and the code at the begin of the message.
#[tokio::test]
async fn sql_refuses_what_the_library_refuses() {
    let (schema, onward, db) = shop().await;
    let (name, long, far) = (&schema.0, "x".repeat(600), "x".repeat(2 * 1024 * 1024));
    let many: serde_json::Map<_, _> =
        (0..33).map(|number| (number.to_string(), json!("x"))).collect();
    db.query_one(&format!("select {name}.start('ship', '1', key => 'k')"), &[]).await.unwrap();
    let refused = [
        ("invalid_name", "''".to_owned()),
        ("invalid_name", "'ship', queue => ''".to_owned()),
        ("invalid_name", "null".to_owned()),
        ("invalid_name", format!("'ship', key => '{long}'")),
        ("invalid_option", "'ship', null".to_owned()),
        ("invalid_option", "'ship', priority => null".to_owned()),
        ("invalid_option", "'ship', timeout => '-1 second'".to_owned()),
        ("invalid_option", "'ship', key => 'l', key_ttl => '-1 second'".to_owned()),
        ("invalid_option", "'ship', tags => '[]'".to_owned()),
        ("invalid_option", r#"'ship', tags => '{"shop": 1}'"#.to_owned()),
        ("invalid_option", r#"'ship', tags => '{"": "north"}'"#.to_owned()),
        ("invalid_option", format!(r#"'ship', tags => '{{"shop": "{long}"}}'"#)),
        ("invalid_option", format!("'ship', tags => '{}'", serde_json::Value::Object(many))),
        ("payload_too_large", format!(r#"'ship', '"{far}"'"#)),
        ("not_serializable", "'ship', '[{\"a\": -1e400}]'".to_owned()),
        ("not_serializable", format!("'ship', '{}'", nested(101))),
        ("key_conflict", "'ship', '2', key => 'k'".to_owned()),
    ];
    for (code, call) in refused {
        let error = db.query(&format!("select {name}.start({call})"), &[]).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        let (shown, call) = (error.message(), &call[..call.len().min(80)]);
        assert_eq!(
            (error.code().code(), shown.starts_with(code)),
            ("OW006", true),
            "{call}: {shown}"
        );
    }
    assert_eq!(onward.list(Query::default()).await.unwrap().runs.len(), 1);
    for value in ["1e400".to_owned(), nested(101)] {
        let call = format!("select {name}.signal(gen_random_uuid(), 'go', '{value}')");
        let error = db.query(&call, &[]).await.unwrap_err();
        assert!(
            error.as_db_error().unwrap().message().starts_with("not_serializable"),
            "{error:?}"
        );
    }
    for value in ["-1.796e308".to_owned(), nested(100)] {
        db.query_one(&format!("select {name}.start('ship', '{value}')"), &[]).await.unwrap();
    }
    let runs = onward.list(Query::default()).await.unwrap().runs;
    for run in runs {
        run.input.read::<Value>().unwrap();
    }
}

/// So many lists in one another.
fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[tokio::test]
async fn every_option_of_a_start_from_sql_is_kept() {
    let (schema, onward, db) = shop().await;
    let call = format!(
        r#"select {}.start('ship', '{{"order": 7}}', key => 'k', queue => 'slow', priority => 3,
            start_at => '2100-01-01 00:00:00+00', timeout => '1 hour', key_ttl => '1 day',
            tags => '{{"shop": "north", "size": "l"}}')::text"#,
        schema.0
    );
    let id: String = db.query_one(&call, &[]).await.unwrap().get(0);
    let run = onward.by_key(SHIP, "k").await.unwrap().status().await.unwrap();
    assert_eq!(run.id.to_string(), id);
    assert_eq!((run.queue.as_str(), run.priority, run.state), ("slow", 3, RunState::Waiting));
    // The deadline counts from the start, the key's life from the call.
    let start: i64 = 4_102_444_800_000;
    assert_eq!(run.due_at.unwrap().as_millis(), start);
    assert_eq!(run.deadline_at.unwrap().as_millis(), start + 3_600_000);
    assert_eq!(
        run.tags,
        [("shop", "north"), ("size", "l")].map(|(n, v)| (n.into(), v.into())).into()
    );
    let sql = format!(
        "select expires_at - created_at from {0}.keys k join {0}.runs r on r.id = k.run",
        schema.0
    );
    let life: i64 = db.query_one(&sql, &[]).await.unwrap().get(0);
    assert_eq!(life, 24 * 3_600_000);
    let tags = [("shop".to_owned(), "north".to_owned())].into();
    let filter = Filter { tags, ..Filter::default() };
    let tagged = onward.list(Query { filter, ..Query::default() }).await.unwrap();
    assert_eq!(tagged.runs.len(), 1);
    // The same again is the same run, and is counted.
    let again: String = db.query_one(&call, &[]).await.unwrap().get(0);
    assert_eq!(again, id);
    assert_eq!(onward.by_key(SHIP, "k").await.unwrap().duplicates().await.unwrap().count, 1);
}

/// As above, for numbers that no float holds: the database keeps every digit of them.
#[tokio::test]
async fn sql_and_the_library_tell_long_numbers_apart_alike() {
    let (schema, onward, db) = shop().await;
    let sql = format!("select {}.start('ship', $1::text::jsonb, key => $2)::text", schema.0);
    let values = [
        ("123456789012345678901234567890", "123456789012345678901234567891"),
        ("-123456789012345678901234567890.0", "-123456789012345678901234567891"),
        ("18446744073709551616", "18446744073709551617"),
        ("1.23456789012345678901234567890e40", "1.23456789012345678901234567891e40"),
        ("0.12345678901234567890123", "0.12345678901234567890124"),
        ("-0.000012345678901234567890", "-0.000012345678901234567891"),
        ("1234567.0000000000000000001", "1234567"),
        ("0.10000000000000001", "0.2"),
        // No more digits than floats are written with: the float, whatever the number of places.
        ("12345678901234567.00", "2"),
        ("1e30", "1e31"),
        ("1000000000000000000000000000000", "1000000000000000000000000000001"),
    ];
    for (number, (value, other)) in values.into_iter().enumerate() {
        let (key, input) = (format!("k-{number}"), Json::parse(value).unwrap());
        let ours = onward.start(RAW, &input).key(key.as_str()).await.unwrap();
        let row = db.query_one(&sql, &[&value, &key]).await;
        let theirs: String = row.unwrap_or_else(|e| panic!("{value}: {e:?}")).get(0);
        assert_eq!(theirs, ours.id().to_string(), "{value}");
        let refused = db.query_one(&sql, &[&other, &key]).await.unwrap_err();
        let refused = refused.as_db_error().unwrap().message().to_owned();
        assert!(refused.starts_with("key_conflict"), "{other}: {refused}");
        // And the other way round.
        let key = format!("l-{number}");
        let row = db.query_one(&sql, &[&value, &key]).await.unwrap();
        let theirs: String = row.get(0);
        let ours = onward.start(RAW, &input).key(key.as_str()).await;
        let ours = ours.unwrap_or_else(|error| panic!("{value}: {error}"));
        assert_eq!(theirs, ours.id().to_string(), "{value}");
    }
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

/// Fails where a float is written as the caller's session has it: one key would be used with two inputs.
#[tokio::test]
async fn a_fingerprint_does_not_depend_on_how_a_session_writes_floats() {
    let (schema, onward, db) = shop().await;
    let sql = format!("select {}.start('ship', $1::text::jsonb, key => $2)::text", schema.0);
    for digits in [0, -15] {
        db.batch_execute(&format!("set extra_float_digits = {digits}")).await.unwrap();
        for (number, value) in [0.30000000000000004, 1234.5678, 1.25e-7, 1e300].iter().enumerate() {
            let key = format!("k{digits}-{number}");
            let ours = onward.start(SHIP, &json!(value)).key(key.as_str()).await.unwrap();
            let row = db.query_one(&sql, &[&value.to_string(), &key]).await;
            let theirs: String = row.unwrap_or_else(|e| panic!("{value}: {e:?}")).get(0);
            assert_eq!(theirs, ours.id().to_string(), "{value} with {digits}");
        }
    }
}

/// A large input without a key is not gone through number by number.
#[tokio::test]
async fn a_fingerprint_is_computed_for_a_key_only() {
    let (schema, _onward, mut db) = shop().await;
    db.batch_execute("set track_functions = 'all'").await.unwrap();
    let counts = "select coalesce(sum(calls), 0)::bigint from pg_stat_xact_user_functions
                  where funcname = 'canonical'";
    for (key, calls) in [("null", 0), ("'k'", 2)] {
        let tx = db.transaction().await.unwrap();
        let call = format!("select {}.start('ship', '[7]', key => {key})", schema.0);
        tx.query_one(&call, &[]).await.unwrap();
        assert_eq!(tx.query_one(counts, &[]).await.unwrap().get::<_, i64>(0), calls, "{key}");
    }
    for beyond in ["1e400", "1e-400"] {
        let call = format!("select {}.start('ship', '[{beyond}]')", schema.0);
        assert!(db.query_one(&call, &[]).await.is_err(), "{beyond} cannot be read back");
    }
}
