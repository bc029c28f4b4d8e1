//! The thread that the store lives on.
//!
//! Owns: one runtime of its own, on which every connection is driven. So a busy runtime of the
//! user's does not hold up a lease or a commit, and the store can be used from any thread. Never
//! knows what is executed on it.

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fault::Fault;
use crate::store::{Answer, Error, Outage};

/// How long a dropped store may go on to write what was submitted.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The store's own runtime. Dropped, it ends after what it was given to keep is done.
#[derive(Debug)]
pub(super) struct Home {
    handle: Handle,
    /// Ends the thread when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Home {
    /// Starts the thread. `kept`: where the tasks arrive that are awaited before it ends.
    pub(super) fn start(kept: mpsc::Receiver<JoinHandle<()>>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name("onward-postgres".to_owned()).spawn(move || {
            runtime.block_on(async move {
                // Never sent to: it ends when the other side is dropped.
                let _ = stopped.await;
                let drain = async {
                    for task in kept.try_iter() {
                        let _ = task.await;
                    }
                };
                let _ = tokio::time::timeout(DRAIN_MAX, drain).await;
            });
        })?;
        Ok(Self { handle, _stop: stop })
    }

    /// Where to spawn.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Executes on the store's thread.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(work)
    }

    /// Executes on the store's thread, to the end even when the caller goes.
    pub(super) fn answer<T: Send + 'static>(
        &self,
        verb: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Answer<'static, T> {
        let task = self.handle.spawn(verb);
        Box::pin(async move {
            match task.await {
                Ok(answer) => answer.map_err(Error::from),
                Err(gone) => Err(Error::Unavailable(Outage::NoAnswer, Box::new(gone))),
            }
        })
    }
}
