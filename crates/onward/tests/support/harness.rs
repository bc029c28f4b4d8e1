//! Stores for a test, each new and with a clock that the test moves.
//!
//! Owns: how each kind is opened for a test, and what it leaves behind. Never has two handles on one
//! store; the conformance suite makes those itself.
#![allow(dead_code, reason = "each test binary uses some of it")]

use std::sync::Arc;

use onward::TestClock;
use onward::conformance::Harness;
use onward::store::{MemoryStore, Store};
use onward::store::{SqliteOptions, SqliteStore};

use crate::database::{self, Schema};

pub(crate) struct Memory(pub(crate) Arc<MemoryStore>);

impl Harness for Memory {
    async fn open(clock: TestClock) -> Self {
        Self(Arc::new(MemoryStore::with_clock(Arc::new(clock))))
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

pub(crate) struct Sqlite {
    store: Arc<SqliteStore>,
    _folder: tempfile::TempDir,
}

impl Harness for Sqlite {
    async fn open(clock: TestClock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions { clock: Arc::new(clock), ..SqliteOptions::default() };
        let store = SqliteStore::open_with(folder.path().join("onward.db"), options).unwrap();
        Self { store: Arc::new(store), _folder: folder }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

pub(crate) struct Postgres {
    store: Arc<onward::store::PostgresStore>,
    _schema: Schema,
}

impl Harness for Postgres {
    async fn open(clock: TestClock) -> Self {
        let schema = Schema::new();
        Self { store: database::open(&schema, &clock).await, _schema: schema }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}
