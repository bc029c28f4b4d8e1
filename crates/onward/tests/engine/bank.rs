//! A program with its own tables in the store's file, whose process a test can kill.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::conformance::{Death, LossyStore};
use onward::rusqlite::Connection;
use onward::store::{SqliteStore, Store};
use onward::{Entry, Onward, RunId, Worker};

/// The file, which outlives the processes.
pub(crate) struct Bank {
    store: Arc<dyn Store>,
    folder: tempfile::TempDir,
}

impl Bank {
    pub(crate) fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path_in(folder.path())).unwrap());
        let bank = Self { store, folder };
        bank.db()
            .execute_batch(
                "create table notes (text text not null);
                 create table parents (id integer primary key);
                 create table children (
                     parent integer references parents (id) deferrable initially deferred
                 )",
            )
            .unwrap();
        bank
    }

    /// A connection of the program's own.
    pub(crate) fn db(&self) -> Connection {
        let db = Connection::open(path_in(self.folder.path())).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let db = self.db();
        let mut all = db.prepare("select text from notes order by rowid").unwrap();
        all.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// The recorded ends of a run's steps, in order.
    pub(crate) async fn ends(&self, run: RunId) -> Vec<String> {
        let page = self.store.history(run, None, 100).await.unwrap();
        let ends = page.records.into_iter().filter(|record| record.entry.kind().is_final());
        ends.map(|record| record.step).collect()
    }

    /// Waits until a step has its result in the store.
    pub(crate) async fn until_done(&self, run: RunId, step: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let page = self.store.history(run, None, 100).await.unwrap();
            let is_done = |record: &onward::Record| {
                record.step == step && matches!(record.entry, Entry::Done(_))
            };
            if page.records.iter().any(is_done) {
                return;
            }
            assert!(Instant::now() < deadline, "{step} is never recorded");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn process(&self) -> Process {
        let store = Arc::new(LossyStore::around(Arc::clone(&self.store)));
        let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
        Process { store, onward }
    }
}

fn path_in(folder: &Path) -> PathBuf {
    folder.join("bank.db")
}

/// One process on the file.
pub(crate) struct Process {
    pub(crate) store: Arc<LossyStore>,
    pub(crate) onward: Onward,
}

impl Process {
    /// Nothing that the process does from here on reaches the file, and its runs are given back.
    pub(crate) async fn kill(self, worker: Worker) {
        self.store.die_after(0, Death::Before);
        self.store.inner().leave(worker.id()).await.unwrap();
    }
}

/// What the workflow function saw, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn note(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }

    pub(crate) fn has(&self, what: &str) -> bool {
        self.0.lock().unwrap().iter().any(|seen| seen == what)
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|seen| *seen == what).count()
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Waits for something within a body. The deadline keeps a fault from hanging the suite.
pub(crate) fn block_until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(4);
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to hold");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) async fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to hold");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Time for a fault to show itself; nothing that is right depends on it.
pub(crate) async fn time_for_a_fault() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}
