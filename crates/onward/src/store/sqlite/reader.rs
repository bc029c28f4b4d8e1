//! The readers: connections that only look.
//!
//! Owns: a few idle connections, opened when needed. Never blocks the caller's runtime, and
//! never sees half a transaction.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::open;
use crate::store::{Answer, Error, Outage};

/// Looks that go on at once. More connections than that only wait for each other.
const LOOKS_MAX: usize = 4;

/// The connections that only look.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    busy_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    /// One permit per connection.
    free: Semaphore,
}

impl Readers {
    pub(super) fn new(path: PathBuf, busy_timeout: Duration) -> Self {
        Self { path, busy_timeout, idle: Mutex::default(), free: Semaphore::new(LOOKS_MAX) }
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
        let conn = idle.map_or_else(|| open::reader(&self.path, self.busy_timeout), Ok)?;
        let snapshot = conn.unchecked_transaction().map_err(Fault::from)?;
        let looked = look(&snapshot);
        drop(snapshot);
        self.idle().push(conn);
        Ok(looked?)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
