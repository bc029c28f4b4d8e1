//! Where the runs of a test live: in memory, or in a file of their own that goes with the test.
//!
//! Owns: opening such a store on a test clock, and the folder that it is in. Never a store whose
//! hints come later than its answers: then nobody could say that nothing is left to do.

use std::sync::Arc;

use crate::store::{MemoryStore, Store};
use crate::{Error, TestClock};

/// A store for one test, and the folder that it is in.
pub(super) struct House {
    pub(super) store: Arc<dyn Store>,
    /// Goes with the last that holds it.
    #[cfg(feature = "sqlite")]
    _folder: Option<file::Folder>,
}

/// Opens a house on a clock.
pub(super) type OpenHouse = Arc<dyn Fn(TestClock) -> Result<House, Error> + Send + Sync>;

impl House {
    /// A store in memory.
    pub(super) fn memory() -> OpenHouse {
        Arc::new(|clock| {
            let store = Arc::new(MemoryStore::with_clock(Arc::new(clock)));
            Ok(House {
                store,
                #[cfg(feature = "sqlite")]
                _folder: None,
            })
        })
    }

    /// A store in a SQLite file, in which `prepare` makes the tables of the program under test.
    #[cfg(feature = "sqlite")]
    pub(super) fn sqlite<F>(prepare: F) -> OpenHouse
    where
        F: Fn(&rusqlite::Connection) -> rusqlite::Result<()> + Send + Sync + 'static,
    {
        Arc::new(move |clock| file::open(clock, &prepare))
    }
}

#[cfg(feature = "sqlite")]
mod file {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::store::{SqliteOptions, SqliteStore};
    use crate::{Code, Uuid};

    /// A folder that is removed when it is dropped.
    pub(super) struct Folder(PathBuf);

    impl Folder {
        fn new() -> std::io::Result<Self> {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("onward-testing-{}-{number}", Uuid::now());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path)?;
            Ok(Self(path))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // What cannot be removed is left to whoever tidies the system's folder.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    pub(super) fn open(
        clock: TestClock,
        prepare: &dyn Fn(&rusqlite::Connection) -> rusqlite::Result<()>,
    ) -> Result<House, Error> {
        let unavailable = |source: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(Code::StoreUnavailable).because(source)
        };
        let folder = Folder::new().map_err(|error| unavailable(error.into()))?;
        let path = folder.0.join("onward.db");
        let options = SqliteOptions { clock: Arc::new(clock), ..SqliteOptions::default() };
        let store = Arc::new(SqliteStore::open_with(&path, options)?);
        let db = rusqlite::Connection::open(&path).map_err(|error| unavailable(error.into()))?;
        prepare(&db).map_err(|error| unavailable(error.into()))?;
        Ok(House { store, _folder: Some(folder) })
    }
}
