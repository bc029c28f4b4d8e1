//! A schema of its own in the tests' Postgres.
//!
//! Owns: where the tests' server is, and one schema per test, dropped at its end. Never leaves a
//! test out: without a server it fails, and says what to do.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;

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
        let name = self.0.clone();
        // On a thread of its own: the test may be inside a runtime, or panicking.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let client = connect().await;
                let sql = format!("drop schema if exists {name} cascade");
                client.batch_execute(&sql).await.unwrap();
            });
        });
        let _ = dropped.join();
    }
}

/// A connection of the test's own.
pub(crate) async fn connect() -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Opens a store in a schema, with a clock that the test moves.
pub(crate) async fn open(schema: &Schema, clock: &TestClock) -> Arc<PostgresStore> {
    let options = PostgresOptions { clock: Some(Arc::new(clock.clone())), ..schema.options() };
    Arc::new(PostgresStore::open_with(&url(), options).await.unwrap())
}
