//! The readers: connections that only look.
//!
//! Owns: a few idle connections, opened when needed. A store has two sets of them, so that the long looks of
//! people never hold up those of the engine. Never blocks the caller's runtime, and never sees half a
//! transaction.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::open;
use crate::store::{Answer, Error, Outage};

/// Looks that go on at once. More connections than that only wait for each other.
const LOOKS_MAX: usize = 4;

/// How long a look for people may take: as long as a person waits. While it goes on, the log cannot begin anew.
const LOOK_TIME_MAX: Duration = Duration::from_secs(30);

/// Instructions of SQLite's machine between two looks at the time: some hundred microseconds.
const TIME_EVERY: i32 = 10_000;

/// Connections that only look.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    busy_timeout: Duration,
    time_max: Option<Duration>,
    idle: Mutex<Vec<Connection>>,
    /// One permit per connection.
    free: Semaphore,
}

impl Readers {
    /// Those of the engine.
    pub(super) fn of_engine(path: PathBuf, busy_timeout: Duration) -> Self {
        Self::new(path, busy_timeout, None)
    }

    /// Those of people, whose looks end after a time.
    pub(super) fn of_people(path: PathBuf, busy_timeout: Duration) -> Self {
        Self::new(path, busy_timeout, Some(LOOK_TIME_MAX))
    }

    fn new(path: PathBuf, busy_timeout: Duration, time_max: Option<Duration>) -> Self {
        let free = Semaphore::new(LOOKS_MAX);
        Self { path, busy_timeout, time_max, idle: Mutex::default(), free }
    }

    /// Looks at one state of the database, on a thread where that may block.
    pub(super) fn look<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        let readers = Arc::clone(self);
        Box::pin(async move {
            let waiting = Arc::clone(&readers);
            // The semaphore is never closed; without a permit the look is only less orderly.
            let _permit = waiting.free.acquire().await;
            let looked = tokio::task::spawn_blocking(move || readers.look_here(look)).await;
            let lost = |error| Err(Error::Unavailable(Outage::NoAnswer, Box::new(error)));
            looked.unwrap_or_else(lost)
        })
    }

    fn look_here<T>(&self, look: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Error> {
        let idle = self.idle().pop();
        let mut conn = idle.map_or_else(|| open::reader(&self.path, self.busy_timeout), Ok)?;
        self.limit_time(&mut conn);
        let snapshot = conn.unchecked_transaction().map_err(Fault::from)?;
        let looked = look(&snapshot);
        drop(snapshot);
        self.idle().push(conn);
        Ok(looked?)
    }

    fn limit_time(&self, conn: &mut Connection) {
        let Some(time_max) = self.time_max else { return };
        let begun = Instant::now();
        let _ = conn.progress_handler(TIME_EVERY, Some(move || begun.elapsed() >= time_max));
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::future::join_all;

    use super::*;
    use crate::RunId;
    use crate::store::{SqliteStore, Store as _, Which};

    fn count_for_ever(conn: &Connection) -> Result<i64, Fault> {
        let sql =
            "with recursive n (i) as (select 1 union all select i + 1 from n) select max(i) from n";
        Ok(conn.query_row(sql, [], |row| row.get(0))?)
    }

    #[tokio::test]
    async fn slow_looks_of_people_hold_up_none_of_the_engine() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("onward.db")).unwrap();
        let mut ends = Vec::new();
        let slow = (0..2 * LOOKS_MAX).map(|_| {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            // Until its end is dropped.
            tokio::spawn(store.people.look(move |_| {
                let _ = ended.recv();
                Ok(())
            }))
        });
        let slow: Vec<_> = slow.collect();
        while store.people.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let run = RunId::new();
        assert!(store.get(Which::Id(run)).await.unwrap().is_none());
        assert!(store.inbox(run, 0).await.is_err());
        assert!(store.live_and_dead().await.unwrap().1.is_empty());
        drop(ends);
        join_all(slow).await.into_iter().for_each(|looked| looked.unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_look_for_people_ends_after_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("onward.db");
        let _store = SqliteStore::open(&path).unwrap();
        let soon = Some(Duration::from_millis(20));
        let readers = Arc::new(Readers::new(path, Duration::from_secs(1), soon));
        let cut = readers.look(count_for_ever).await;
        assert!(matches!(cut, Err(Error::Unavailable(Outage::NoAnswer, _))), "{cut:?}");
        // The next one has its own time.
        readers.look(|conn| Ok(conn.query_row("select 1", [], |_| Ok(()))?)).await.unwrap();
    }
}
