//! A store whose answers get lost: the write is done, and the writer is not told.
//!
//! Owns: the faults that every durable system meets and few test: an answer that is lost, and a
//! process that dies before or after a write. Never changes a write.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::store::{
    Answer, Claim, Claims, Duplicates, Error, HistoryPage, Import, Imported, Lease, NewRun,
    NewWorker, Outage, Portable, Prune, Pruned, Query, RunPage, Settle, Settled, Started, Stats,
    Store, Sweep, Swept, Topic, Waiter, Which, WholeRun,
};
use crate::{Clock, Record, Run, RunId, Timestamp, WorkerId};

/// A store around another, which does every write and can lose the answers.
///
/// ```
/// # use std::sync::Arc;
/// # use onward::conformance::LossyStore;
/// # use onward::store::{MemoryStore, Store};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = LossyStore::around(Arc::new(MemoryStore::new()));
/// store.lose_next(1);
/// let worker = onward::WorkerId::new();
/// assert!(store.leave(worker).await.is_err());
/// assert!(store.leave(worker).await.is_ok());
/// # }
/// ```
pub struct LossyStore {
    inner: Arc<dyn Store>,
    /// How many answers are still to be lost.
    losses: AtomicUsize,
    /// How many writes are still done before the store goes silent, and on which side of the
    /// next one that falls.
    life: Mutex<Option<(usize, Death)>>,
    died: Notify,
}

/// On which side of a write a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The write is not done.
    Before,
    /// The write is done and nobody is told.
    After,
}

/// What becomes of a write.
enum Fate {
    Answered,
    AnswerLost,
    Silent(Death),
}

impl LossyStore {
    /// A store that does what `inner` does, and loses no answer until it is told to.
    pub fn around(inner: Arc<dyn Store>) -> Self {
        Self { inner, losses: AtomicUsize::new(0), life: Mutex::default(), died: Notify::new() }
    }

    /// The store around which this one is.
    pub fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner)
    }

    /// Loses the answers to the next `count` writes.
    pub fn lose_next(&self, count: usize) {
        self.losses.store(count, Ordering::SeqCst);
    }

    /// Whether every answer that was to be lost is lost.
    pub fn has_lost_all(&self) -> bool {
        self.losses.load(Ordering::SeqCst) == 0
    }

    /// Goes silent after `writes` more writes: the next one is done or not, and neither it nor any
    /// later one is answered, as for a process that died there.
    pub fn die_after(&self, writes: usize, death: Death) {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = Some((writes, death));
    }

    /// Resolves once the store has gone silent.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    fn fate(&self) -> Fate {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((writes, death)) = &mut *life {
            if *writes == 0 {
                let fate = Fate::Silent(*death);
                // Whatever comes after the death is not done at all.
                *death = Death::Before;
                return fate;
            }
            *writes -= 1;
        }
        let lost = (self.losses)
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        if lost { Fate::AnswerLost } else { Fate::Answered }
    }

    fn write<'a, T: Send + 'a>(&'a self, write: impl FnOnce() -> Answer<'a, T>) -> Answer<'a, T> {
        match self.fate() {
            Fate::Answered => write(),
            Fate::AnswerLost => {
                let answer = write();
                Box::pin(async move {
                    drop(answer.await);
                    Err(Error::Unavailable(Outage::NoAnswer, "the answer was lost".into()))
                })
            }
            Fate::Silent(death) => {
                let answer = (death == Death::After).then(write);
                Box::pin(async move {
                    if let Some(answer) = answer {
                        drop(answer.await);
                    }
                    self.died.notify_one();
                    std::future::pending().await
                })
            }
        }
    }
}

impl fmt::Debug for LossyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Store for LossyStore {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }

    fn start(&self, runs: Vec<NewRun>) -> Answer<'_, Vec<Result<Started, Error>>> {
        self.write(|| self.inner.start(runs))
    }

    fn join(&self, worker: NewWorker) -> Answer<'_, ()> {
        self.write(|| self.inner.join(worker))
    }

    fn renew(&self, worker: WorkerId) -> Answer<'_, Timestamp> {
        self.write(|| self.inner.renew(worker))
    }

    fn leave(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.write(|| self.inner.leave(worker))
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        self.write(|| self.inner.claim(claim))
    }

    fn record(&self, lease: Lease, records: Vec<Record>) -> Answer<'_, ()> {
        self.write(|| self.inner.record(lease, records))
    }

    fn settle(&self, lease: Lease, settle: Settle) -> Answer<'_, Settled> {
        self.write(|| self.inner.settle(lease, settle))
    }

    fn cancel(&self, run: RunId) -> Answer<'_, Run> {
        self.write(|| self.inner.cancel(run))
    }

    fn retry(&self, run: RunId) -> Answer<'_, Run> {
        self.write(|| self.inner.retry(run))
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        self.write(|| self.inner.sweep(sweep))
    }

    fn prune(&self, prune: Prune) -> Answer<'_, Pruned> {
        self.write(|| self.inner.prune(prune))
    }

    fn wait(&self, topic: Topic) -> Waiter {
        self.inner.wait(topic)
    }

    fn get(&self, which: Which) -> Answer<'_, Option<Run>> {
        self.inner.get(which)
    }

    fn list(&self, query: Query) -> Answer<'_, RunPage> {
        self.inner.list(query)
    }

    fn history(&self, run: RunId, after: Option<u64>, limit: usize) -> Answer<'_, HistoryPage> {
        self.inner.history(run, after, limit)
    }

    fn duplicates(&self, run: RunId) -> Answer<'_, Duplicates> {
        self.inner.duplicates(run)
    }

    fn stats(&self) -> Answer<'_, Stats> {
        self.inner.stats()
    }

    fn portable(&self) -> Option<&dyn Portable> {
        self.inner.portable()?;
        Some(self)
    }
}

impl Portable for LossyStore {
    fn export(&self, after: Option<RunId>, limit: usize) -> Answer<'_, Vec<WholeRun>> {
        match self.inner.portable() {
            Some(inner) => inner.export(after, limit),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        match self.inner.portable() {
            Some(inner) => self.write(|| inner.import(import)),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }
}
