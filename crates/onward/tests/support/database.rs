//! A schema of its own in the tests' Postgres.
//!
//! Owns: where the tests' server is, and one schema per test, dropped at its end. Never leaves a
//! test out: without a server it fails, and says what to do.
#![allow(dead_code, reason = "each test binary uses some of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use onward::store::{Lease, PostgresOptions, PostgresStore, Store};
use onward::{Clock, Entry, Record, RunId, TestClock, WorkerId};

/// The URL of the tests' server.
pub(crate) fn url() -> String {
    match std::env::var("ONWARD_TEST_POSTGRES") {
        Ok(url) => url,
        Err(_) => panic!(
            "ONWARD_TEST_POSTGRES is not set: run ./scripts/test, or scripts/postgres cargo test …"
        ),
    }
}

/// The URL of a pooler before the tests' server.
pub(crate) fn pooler_url() -> String {
    match std::env::var("ONWARD_TEST_PGBOUNCER") {
        Ok(url) => url,
        Err(_) => panic!(
            "ONWARD_TEST_PGBOUNCER is not set: run ./scripts/test, or scripts/postgres cargo test \
             …, or set it to the URL of a PgBouncer in transaction mode before the server"
        ),
    }
}

/// A schema that no other test has.
pub(crate) struct Schema(pub(crate) String);

impl Schema {
    pub(crate) fn new() -> Self {
        Schema(format!("test_{:032x}", RunId::new().as_u128()))
    }

    /// Options that put a store there.
    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions { schema: self.0.clone(), pool_size: 4, ..PostgresOptions::default() }
    }

    /// A URL that puts a store there.
    pub(crate) fn url(&self) -> String {
        format!("{}?schema={}", url(), self.0)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        execute_apart(format!("drop schema if exists {} cascade", self.0));
    }
}

/// Executes a statement on a thread of its own: a test that ends may be inside a runtime, or
/// panicking. One that panics may hold locks until its runtime ends: then what it made is left.
pub(crate) fn execute_apart(sql: String) {
    let executed = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let client = connect().await;
            client.batch_execute("set lock_timeout = '5s'").await.unwrap();
            client.batch_execute(&sql).await.unwrap();
        });
    });
    let _ = executed.join();
}

/// A connection of the test's own.
pub(crate) async fn connect() -> tokio_postgres::Client {
    connect_to(&url()).await
}

/// A connection of the test's own to some database.
pub(crate) async fn connect_to(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Opens a store in a schema, with a clock that the test moves.
pub(crate) async fn open(schema: &Schema, clock: &TestClock) -> Arc<PostgresStore> {
    open_at(&url(), schema, clock).await
}

/// As [`open`], at another URL of the server.
pub(crate) async fn open_at(url: &str, schema: &Schema, clock: &TestClock) -> Arc<PostgresStore> {
    let options = PostgresOptions { clock: Some(Arc::new(clock.clone())), ..schema.options() };
    Arc::new(PostgresStore::open_with(url, options).await.unwrap())
}

/// As [`open`], for a caller on a runtime with threads: lone writes are sent by their callers from the
/// first on.
pub(crate) async fn open_near(schema: &Schema, clock: &TestClock) -> Arc<PostgresStore> {
    let store = open(schema, clock).await;
    let raw = connect().await;
    // One lane's, and that of the callers, which has prepared an end or made a record last.
    let writing = format!(
        "select count(*) from pg_stat_activity
         where query like 'select {0}.record(%' or query like 'select run, answer from {0}.settle(%'",
        schema.0
    );
    let end = Instant::now() + Duration::from_secs(20);
    while raw.query_one(&writing, &[]).await.unwrap().get::<_, i64>(0) < 2 {
        // Refused, since nobody has such a run, and leaves nothing behind.
        let lease = Lease { run: RunId::from_u128(0), worker: WorkerId::new(), attempt: 1 };
        let record = Record::new(1, "step", Entry::Began, clock.now());
        store.record(lease, vec![record]).await.unwrap_err();
        assert!(Instant::now() < end, "there is no connection for lone writes");
    }
    store
}
