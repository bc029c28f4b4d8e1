//! The connections for all that is not a group commit.
//!
//! Owns: how many there are, and which may be used again. Never hands out one that was left inside
//! a transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Client;

use super::connect::Connector;
use super::fault::Fault;

/// A bounded number of connections, made as they are needed.
#[derive(Debug)]
pub(super) struct Pool {
    connector: Connector,
    timeout: Duration,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(super) fn new(connector: Connector, size: usize, timeout: Duration) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(size));
        Arc::new(Self { connector, timeout, places, idle: Mutex::default() })
    }

    /// A connection, after others have given theirs back if all are in use.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Pooled, Fault> {
        let place = Arc::clone(&self.places).acquire_owned();
        let place = match tokio::time::timeout(self.timeout, place).await {
            Ok(Ok(place)) => place,
            _ => {
                let why =
                    format!("every connection was in use for {:?}; raise pool_size", self.timeout);
                return Err(Fault::no_answer(why));
            }
        };
        let client = match self.take_idle() {
            Some(client) => client,
            None => self.connector.connect().await?,
        };
        let pool = Arc::clone(self);
        Ok(Pooled { client: Some(client), pool, is_clean: true, _place: place })
    }

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|client| !client.is_closed())
    }
}

/// A connection that goes back when it is dropped, if it is clean.
pub(super) struct Pooled {
    client: Option<Client>,
    pool: Arc<Pool>,
    /// Whether no transaction is open on it.
    pub(super) is_clean: bool,
    _place: OwnedSemaphorePermit,
}

impl std::ops::Deref for Pooled {
    type Target = Client;

    #[allow(clippy::expect_used, reason = "it is taken only when this is dropped")]
    fn deref(&self) -> &Client {
        self.client.as_ref().expect("a connection that is in use is there")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && self.is_clean
            && !client.is_closed()
        {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}
