//! The conformance suite on the stores of this crate.

use std::sync::Arc;

use onward::TestClock;
use onward::conformance::{Harness, KeysHarness};
use onward::store::Keys;
use onward::store::Store;

mod memory {
    use super::*;
    use crate::harness::Memory;

    impl KeysHarness for Memory {
        async fn open(clock: TestClock) -> Self {
            <Self as Harness>::open(clock).await
        }

        fn keys(&self) -> Arc<dyn Keys> {
            self.0.clone()
        }
    }

    onward::conformance_suite!(Memory);
    onward::key_conformance_suite!(Memory);
}

mod sqlite {
    use onward::store::{SqliteOptions, SqliteStore};
    use tempfile::TempDir;

    use super::*;

    /// Two handles on one file, as two processes have them.
    pub(crate) struct Sqlite {
        store: Arc<SqliteStore>,
        other: Arc<SqliteStore>,
        _folder: TempDir,
    }

    impl Harness for Sqlite {
        async fn open(clock: TestClock) -> Self {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("onward.db");
            let open = || {
                let clock = Arc::new(clock.clone());
                let options = SqliteOptions { clock, ..SqliteOptions::default() };
                Arc::new(SqliteStore::open_with(&path, options).unwrap())
            };
            Sqlite { store: open(), other: open(), _folder: folder }
        }

        fn store(&self) -> Arc<dyn Store> {
            self.store.clone()
        }

        fn other(&self) -> Arc<dyn Store> {
            self.other.clone()
        }
    }

    impl KeysHarness for Sqlite {
        async fn open(clock: TestClock) -> Self {
            <Self as Harness>::open(clock).await
        }

        fn keys(&self) -> Arc<dyn Keys> {
            self.store.clone()
        }

        fn other(&self) -> Arc<dyn Keys> {
            self.other.clone()
        }
    }

    onward::conformance_suite!(Sqlite);
    onward::key_conformance_suite!(Sqlite);
}

mod postgres {
    use onward::store::PostgresStore;

    use super::*;
    use crate::database::{Schema, open, open_near};

    /// Two handles on one schema, as two processes have them. Lone writes go by their callers' connection
    /// in the first and by the lanes in the second, as everywhere else.
    pub(crate) struct Postgres {
        store: Arc<PostgresStore>,
        other: Arc<PostgresStore>,
        _schema: Schema,
    }

    impl Harness for Postgres {
        async fn open(clock: TestClock) -> Self {
            let schema = Schema::lent();
            let store = open_near(&schema, &clock).await;
            let other = open(&schema, &clock).await;
            Postgres { store, other, _schema: schema }
        }

        fn store(&self) -> Arc<dyn Store> {
            self.store.clone()
        }

        fn other(&self) -> Arc<dyn Store> {
            self.other.clone()
        }
    }

    impl KeysHarness for Postgres {
        async fn open(clock: TestClock) -> Self {
            <Self as Harness>::open(clock).await
        }

        fn keys(&self) -> Arc<dyn Keys> {
            self.store.clone()
        }

        fn other(&self) -> Arc<dyn Keys> {
            self.other.clone()
        }
    }

    onward::conformance_suite!(Postgres);
    onward::key_conformance_suite!(Postgres);
}

mod pooler {
    use onward::store::PostgresStore;

    use super::*;
    use crate::database::{Schema, open_at, pooler_url};

    /// As `postgres`, with a pooler in transaction mode before the server. Its suite is `coded::pooler`: a
    /// codec changes what is sent, and a pooler where it goes, so one pass finds the faults of either.
    pub(crate) struct Pooler {
        store: Arc<PostgresStore>,
        other: Arc<PostgresStore>,
        _schema: Schema,
    }

    impl Harness for Pooler {
        async fn open(clock: TestClock) -> Self {
            let schema = Schema::lent();
            let store = open_at(&pooler_url(), &schema, &clock).await;
            let other = open_at(&pooler_url(), &schema, &clock).await;
            Pooler { store, other, _schema: schema }
        }

        fn store(&self) -> Arc<dyn Store> {
            self.store.clone()
        }

        fn other(&self) -> Arc<dyn Store> {
            self.other.clone()
        }
    }

    impl KeysHarness for Pooler {
        async fn open(clock: TestClock) -> Self {
            <Self as Harness>::open(clock).await
        }

        fn keys(&self) -> Arc<dyn Keys> {
            self.store.clone()
        }

        fn other(&self) -> Arc<dyn Keys> {
            self.other.clone()
        }
    }
}

/// Every store again, with its payloads encrypted; Postgres behind a pooler.
mod coded {
    use onward::codec::{Coding, Encryption, KeyRing, SecretKey};
    use onward::store::{CodedKeys, CodedStore};

    use super::*;

    fn coding() -> Coding {
        let secret = |byte| SecretKey::new([byte; 32]);
        let ring = KeyRing::new("k1", &secret(1), secret(2)).unwrap();
        Coding::new().and(Arc::new(Encryption::new(ring)))
    }

    /// A store inside, and what is around it.
    struct Coded<H>(H);

    impl<H: Harness> Harness for Coded<H> {
        async fn open(clock: TestClock) -> Self {
            Self(H::open(clock).await)
        }

        fn store(&self) -> Arc<dyn Store> {
            Arc::new(CodedStore::around(self.0.store(), coding()))
        }

        fn other(&self) -> Arc<dyn Store> {
            Arc::new(CodedStore::around(self.0.other(), coding()))
        }
    }

    impl<H: KeysHarness> KeysHarness for Coded<H> {
        async fn open(clock: TestClock) -> Self {
            Self(H::open(clock).await)
        }

        fn keys(&self) -> Arc<dyn Keys> {
            Arc::new(CodedKeys::around(self.0.keys(), coding()))
        }

        fn other(&self) -> Arc<dyn Keys> {
            Arc::new(CodedKeys::around(self.0.other(), coding()))
        }
    }

    mod memory {
        use super::Coded;
        use crate::harness::Memory;

        onward::conformance_suite!(Coded<Memory>);
        onward::key_conformance_suite!(Coded<Memory>);
    }

    mod sqlite {
        use super::Coded;
        use crate::conformance::sqlite::Sqlite;

        onward::conformance_suite!(Coded<Sqlite>);
        onward::key_conformance_suite!(Coded<Sqlite>);
    }

    mod pooler {
        use super::Coded;
        use crate::conformance::pooler::Pooler;

        onward::conformance_suite!(Coded<Pooler>);
        onward::key_conformance_suite!(Coded<Pooler>);
    }
}

/// A case that the suite does not list would never execute.
#[test]
fn every_case_is_in_the_suite() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let files = || std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let lists = files().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name == "mod.rs" || name.ends_with("_suite.rs")
    });
    let suite: String = lists.map(|path| read(&path)).collect();
    let listed: Vec<&str> = suite.lines().map(str::trim).collect();
    for path in files() {
        for line in read(&path).lines() {
            let name = line.strip_prefix("pub async fn ");
            let ends = ["(stage: &Stage) {", "(stage: &KeyStage) {"];
            let name = name.and_then(|rest| ends.iter().find_map(|end| rest.strip_suffix(end)));
            if let Some(name) = name {
                assert!(listed.contains(&name), "{name} is not listed");
            }
        }
    }
}
