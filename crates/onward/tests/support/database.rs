//! A schema of its own in the tests' Postgres.
//!
//! Owns: where the tests' server is, and one schema per test: new and dropped at its end, or lent, since
//! to make one costs more than most tests. Never leaves a test out: without a server it fails, and says
//! what to do.
#![allow(dead_code, reason = "each test binary uses some of it")]

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use onward::store::{PostgresOptions, PostgresStore};
use onward::{RunId, TestClock};

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

/// A schema that no other test has meanwhile.
pub(crate) struct Schema(pub(crate) String, pub(crate) Option<Loan>);

impl Schema {
    pub(crate) fn new() -> Self {
        Schema(format!("test_{:032x}", RunId::new().as_u128()), None)
    }

    /// An empty one for a test that leaves its tables and functions as they are; another test of this
    /// test run had it before. On a server that goes on after the tests it is a new one, as nobody
    /// would remove it.
    pub(crate) fn lent() -> Self {
        if std::env::var("ONWARD_TEST_POSTGRES_DATA").is_err() {
            return Self::new();
        }
        let ((sender, name), (end, ended)) = (mpsc::channel(), mpsc::channel());
        // A thread of its own keeps the connection whose lock says that the schema is taken.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            let (_client, name) = runtime.block_on(borrow());
            sender.send(name).unwrap();
            let _: Result<(), _> = ended.recv();
        });
        Schema(name.recv().unwrap(), Some(Loan(end)))
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

/// A schema is lent for as long as this lives.
pub(crate) struct Loan(
    #[allow(dead_code, reason = "its drop says that the loan is over")] mpsc::Sender<()>,
);

/// Takes the first schema of this test run that nobody has, and empties it.
async fn borrow() -> (tokio_postgres::Client, String) {
    let client = connect().await;
    // A later test run may have other tables and functions.
    let id = std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| std::process::id().to_string());
    let mut hash = DefaultHasher::new();
    id.hash(&mut hash);
    let pool = format!("lent_{:016x}", hash.finish());
    for number in 1.. {
        let name = format!("{pool}_{number}");
        // Whoever had it may still be closing connections.
        let free = format!(
            "select pg_try_advisory_lock(hashtext('{pool}'), {number}) and not exists (
                 select from pg_stat_activity where query like '%{name}.%' and pid <> pg_backend_pid())"
        );
        if client.query_one(&free, &[]).await.unwrap().get(0) {
            client.batch_execute(&emptying(&name)).await.unwrap();
            return (client, name);
        }
    }
    unreachable!("there is always another number")
}

/// What empties a schema, but for its version. To truncate a table costs some ten milliseconds, and deleted rows
/// stay in its indexes until a vacuum, where claims look past them: so the rows of small tables are deleted, and
/// the others are truncated.
fn emptying(schema: &str) -> String {
    format!(
        "do $$ declare tab record; begin
           for tab in
               select c.oid::regclass as name, pg_relation_size(c.oid) as bytes
               from pg_class c
               where c.relnamespace = to_regnamespace('{schema}') and c.relkind = 'r'
                   and c.relname <> 'schema' and pg_relation_size(c.oid) > 0
           loop
             if tab.bytes > 131072 then
               execute 'truncate ' || tab.name || ' restart identity';
             else
               execute 'delete from ' || tab.name;
             end if;
           end loop;
         end $$"
    )
}

impl Drop for Schema {
    fn drop(&mut self) {
        if self.1.is_some() {
            return;
        }
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
    let end = Instant::now() + Duration::from_secs(20);
    while !store.is_near() {
        assert!(Instant::now() < end, "there is no connection for lone writes");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store
}
