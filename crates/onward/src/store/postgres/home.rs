//! The thread that the store lives on.
//!
//! Owns: one runtime of its own, on which every connection is driven but that of lone writes. So a
//! busy runtime of the user's does not hold up a lease or a commit, and the store can be used from any
//! thread. Never knows what is executed on it.

use std::future::Future;
use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fault::Fault;
use crate::store::{Answer, BoxFuture, Error, Outage};

/// How long a dropped store may go on to write what was submitted.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// How long whoever drops a store waits until it is done: a process that ends right after a commit
/// would take the hint to the others with it. Mostly there is nothing left to do.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// The store's own runtime. Dropped, it ends after what it was given to keep is done.
#[derive(Debug)]
pub(super) struct Home {
    handle: Handle,
    thread: ThreadId,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    /// Never sent to: the thread drops the other side when it is done.
    done: Mutex<mpsc::Receiver<()>>,
}

impl Home {
    /// Starts the thread. `kept`: where the tasks arrive that are awaited before it ends; `last`: what
    /// is done after them.
    pub(super) fn start(
        kept: mpsc::Receiver<JoinHandle<()>>,
        last: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (is_done, done) = mpsc::channel();
        let named = thread::Builder::new().name("onward-postgres".to_owned());
        let thread = named.spawn(move || {
            runtime.block_on(async move {
                // Never sent to: it ends when the other side is dropped.
                let _ = stopped.await;
                let drain = async {
                    for task in kept.try_iter() {
                        let _ = task.await;
                    }
                    last.await;
                };
                let _ = tokio::time::timeout(DRAIN_MAX, drain).await;
            });
            drop(is_done);
        })?;
        let (thread, done) = (thread.thread().id(), Mutex::new(done));
        Ok(Self { handle, thread, stop: Some(stop), done })
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
        let work: BoxFuture<'static, T> = Box::pin(work);
        self.handle.spawn(work)
    }

    /// Executes on the store's thread, to the end even when the caller goes.
    pub(super) fn answer<T: Send + 'static>(
        &self,
        verb: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Answer<'static, T> {
        // Boxed, so that the task is compiled once per output type and not for each verb.
        let verb: BoxFuture<'static, Result<T, Fault>> = Box::pin(verb);
        let task = self.handle.spawn(verb);
        Box::pin(async move {
            match task.await {
                Ok(answer) => answer.map_err(Error::from),
                Err(gone) => Err(Error::Unavailable(Outage::NoAnswer, Box::new(gone))),
            }
        })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.stop = None;
        // A body on the store's own thread may be the last to have it, and must not wait for itself.
        if thread::current().id() != self.thread {
            let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _: Result<(), _> = done.recv_timeout(FAREWELL_MAX);
        }
    }
}
