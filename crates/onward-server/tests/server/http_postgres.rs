//! The cases over a real Postgres.

#[path = "cases/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "the cases are tried on two stores")]
mod cases;

use onward::RunId;
use onward::tokio_postgres::{self, NoTls};

/// A schema of a test's own, dropped at its end.
struct Place {
    server: String,
    schema: String,
}

impl Place {
    fn new() -> Self {
        let server = std::env::var("ONWARD_TEST_POSTGRES").unwrap_or_else(|_| {
            panic!("ONWARD_TEST_POSTGRES is not set: run ./scripts/test, or scripts/postgres cargo test …")
        });
        Self { server, schema: format!("test_{:032x}", RunId::new().as_u128()) }
    }

    fn url(&self) -> String {
        format!("{}?schema={}&pool_size=4", self.server, self.schema)
    }
}

impl Drop for Place {
    /// On a thread of its own: a test that ends may be inside a runtime, or panicking.
    fn drop(&mut self) {
        let (server, schema) = (self.server.clone(), self.schema.clone());
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let (client, connection) = tokio_postgres::connect(&server, NoTls).await.unwrap();
                tokio::spawn(connection);
                let sql =
                    format!("set lock_timeout = '5s'; drop schema if exists {schema} cascade");
                client.batch_execute(&sql).await.unwrap();
            });
        });
        let _ = dropped.join();
    }
}
