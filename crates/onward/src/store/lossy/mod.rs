//! A store whose answers get lost: the write is done, and the writer is not told.
//!
//! Owns: the faults that every durable system meets and few test: an answer that is lost, and a
//! process that dies before or after a write. Never changes a write.

mod beside;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use crate::store::around::as_inner;
use crate::store::{
    Answer, Append, Audit, Claim, Claims, Delete, Duplicates, Error, HistoryPage, Inbox, Keys,
    Lease, Looks, NewRun, NewSignal, NewWorker, Notebook, Outage, Portable, Prune, Pruned, Query,
    Queues, Renewed, RunPage, Schedules, Settle, Settled, Signalled, Started, Stats, Steer, Store,
    Sweep, Swept, Topic, Transact, Transacted, Waiter, Which, WorkerInfo,
};
use crate::{Clock, Record, Run, RunId, WorkerId};

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
    /// How many answers to transactions are still to be lost.
    transaction_losses: AtomicUsize,
    /// How many writes of records are still to be acknowledged and forgotten.
    to_forget: AtomicUsize,
    /// The workers that have joined the store as it is, and those that have joined one that it was before.
    joined: Mutex<(Vec<WorkerId>, Vec<WorkerId>)>,
    /// Whether each kind of [`Held`] is held back.
    held: [watch::Sender<bool>; 5],
    /// How many of each kind were asked for.
    asked: [AtomicUsize; 5],
    /// How many writes are still done before the store goes silent, and on which side of the
    /// next one that falls.
    life: Mutex<Option<(usize, Death)>>,
    died: Notify,
    /// How many writes are still done before the store cannot be reached.
    reach: Mutex<Option<usize>>,
    /// Who says at which write under a lease the process dies.
    #[cfg(feature = "testing")]
    judge: Option<Judge>,
    /// Who counts the calls that are under way.
    #[cfg(feature = "testing")]
    watch: Option<Arc<crate::watch::Watch>>,
}

/// Says whether the process dies at a write, and on which side of it.
#[cfg(feature = "testing")]
pub(crate) type Judge = Box<dyn Fn(Write<'_>) -> Option<Death> + Send + Sync>;

/// A write under a lease.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "nobody judges it"))]
pub(crate) enum Write<'a> {
    /// Records of a run.
    Record(RunId, &'a [Record]),
    /// The end of an attempt, with its last records.
    Settle(RunId, &'a Settle),
    /// The start of a child, by the step that its end is told to.
    Start(RunId, &'a str),
    /// A transactional step.
    Transact(RunId, &'a str),
}

/// On which side of a write a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The write is not done.
    Before,
    /// The write is done and nobody is told.
    After,
}

/// What can be held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The answers to [`Store::record`].
    Records,
    /// The answers to [`Store::transact`].
    Transactions,
    /// [`Store::transact`] itself: nothing is done yet.
    TransactionsBefore,
    /// [`Store::start`] of children: nothing is done yet.
    Children,
    /// [`Store::inbox`]: nothing is read yet.
    Looks,
}

/// What becomes of a write.
enum Fate {
    Answered,
    AnswerLost,
    Refused,
    Silent(Death),
}

impl LossyStore {
    /// A store that does what `inner` does, and loses no answer until it is told to.
    pub fn around(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            losses: AtomicUsize::new(0),
            transaction_losses: AtomicUsize::new(0),
            to_forget: AtomicUsize::new(0),
            joined: Mutex::default(),
            held: Default::default(),
            asked: Default::default(),
            life: Mutex::default(),
            died: Notify::new(),
            reach: Mutex::default(),
            #[cfg(feature = "testing")]
            judge: None,
            #[cfg(feature = "testing")]
            watch: None,
        }
    }

    /// Asks `judge` at each write under a lease whether the process dies there.
    #[cfg(feature = "testing")]
    pub(crate) fn judged(mut self, judge: Judge) -> Self {
        self.judge = Some(judge);
        self
    }

    /// Counts every call as awake until it is answered: that of a store which answers at once
    /// needs no counting.
    #[cfg(feature = "testing")]
    pub(crate) fn watched(mut self, watch: Arc<crate::watch::Watch>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Goes silent at once, as for a process that dies between two writes.
    #[cfg(feature = "testing")]
    pub(crate) fn die(&self) {
        self.die_after(0, Death::Before);
        self.died.notify_one();
    }

    /// The store around which this one is.
    pub fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner)
    }

    /// Loses the answers to the next `count` writes.
    pub fn lose_next(&self, count: usize) {
        self.losses.store(count, Ordering::SeqCst);
    }

    /// Loses the answers to the next `count` transactions.
    pub fn lose_next_transactions(&self, count: usize) {
        self.transaction_losses.store(count, Ordering::SeqCst);
    }

    /// Acknowledges the next `count` writes of records and does none of them, as if the store had gone back
    /// to an earlier state right after.
    pub fn forget_next(&self, count: usize) {
        self.to_forget.store(count, Ordering::SeqCst);
    }

    /// Becomes another store to the workers that have joined, as a server does that is promoted.
    pub fn move_on(&self) {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut joined.0);
        joined.1.extend(before);
    }

    /// Holds these back from here on until they are let go, so that a test can choose which of two
    /// writes is done or answered first.
    pub fn hold(&self, held: Held) {
        self.held[held as usize].send_replace(true);
    }

    /// How many such writes were done or begun so far.
    pub fn asked(&self, held: Held) -> usize {
        self.asked[held as usize].load(Ordering::SeqCst)
    }

    /// Lets go of what was held back, and of what is to come.
    pub fn let_go(&self, held: Held) {
        self.held[held as usize].send_replace(false);
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

    /// Cannot be reached after `writes` more writes: each is refused at once and not done, as by a
    /// server that is down, until it [comes back](Self::come_back).
    pub fn go_away_after(&self, writes: usize) {
        *self.reach.lock().unwrap_or_else(PoisonError::into_inner) = Some(writes);
    }

    /// Can be reached again.
    pub fn come_back(&self) {
        *self.reach.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Resolves once the store has gone silent.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    #[cfg_attr(not(feature = "testing"), allow(unused_variables, reason = "nobody judges it"))]
    fn fate_of(&self, write: Write<'_>) -> Fate {
        #[cfg(feature = "testing")]
        if let Some(death) = self.judge.as_ref().and_then(|judge| judge(write)) {
            self.die_after(0, Death::Before);
            return Fate::Silent(death);
        }
        self.fate()
    }

    fn counted<'a, T: Send + 'a>(&self, answer: Answer<'a, T>) -> Answer<'a, T> {
        #[cfg(feature = "testing")]
        if let Some(watch) = &self.watch {
            let mut engaged = crate::watch::Engaged::new(Some(Arc::clone(watch)));
            engaged.set(true);
            return Box::pin(async move {
                let _engaged = engaged;
                answer.await
            });
        }
        answer
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
        match &mut *self.reach.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(0) => return Fate::Refused,
            Some(writes) => *writes -= 1,
            None => {}
        }
        if is_one_lost(&self.losses) { Fate::AnswerLost } else { Fate::Answered }
    }

    fn write<'a, T: Send + 'a>(&'a self, write: impl FnOnce() -> Answer<'a, T>) -> Answer<'a, T> {
        self.write_with(self.fate(), write)
    }

    fn write_with<'a, T: Send + 'a>(
        &'a self,
        fate: Fate,
        write: impl FnOnce() -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match fate {
            Fate::Answered => self.counted(write()),
            Fate::AnswerLost => self.counted(lost(write())),
            Fate::Refused => {
                let refused = Error::Unavailable(Outage::NoAnswer, "it is not there".into());
                Box::pin(std::future::ready(Err(refused)))
            }
            Fate::Silent(death) => {
                let answer = (death == Death::After).then(|| self.counted(write()));
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

impl LossyStore {
    fn answer_later<'a, T: Send + 'a>(
        &'a self,
        held: Held,
        answer: Answer<'a, T>,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = answer.await;
            self.free(held).await;
            answer
        })
    }

    async fn free(&self, held: Held) {
        // The gate is the store's own, so it is there.
        let _ = self.held[held as usize].subscribe().wait_for(|held| !held).await;
    }
}

/// Waits for an answer, and loses it.
fn lost<'a, T: Send + 'a>(answer: Answer<'a, T>) -> Answer<'a, T> {
    Box::pin(async move {
        drop(answer.await);
        Err(Error::Unavailable(Outage::NoAnswer, "the answer was lost".into()))
    })
}

fn is_one_lost(losses: &AtomicUsize) -> bool {
    let less = |left: usize| left.checked_sub(1);
    losses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
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

    #[cfg(feature = "postgres")]
    fn postgres(&self) -> Option<&crate::store::PostgresStore> {
        self.inner.postgres()
    }

    fn sqlite_file(&self) -> Option<&Path> {
        self.inner.sqlite_file()
    }

    fn coded(&self) -> Option<&crate::store::CodedStore> {
        self.inner.coded()
    }

    fn start(&self, runs: Vec<NewRun>) -> Answer<'_, Vec<Result<Started, Error>>> {
        let Some(parent) = runs.first().and_then(|run| run.parent.as_ref()) else {
            return self.write(|| self.inner.start(runs));
        };
        let fate = self.fate_of(Write::Start(parent.lease.run, &parent.step));
        self.asked[Held::Children as usize].fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.free(Held::Children).await;
            self.write_with(fate, || self.inner.start(runs)).await
        })
    }

    fn join(&self, worker: NewWorker) -> Answer<'_, ()> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).0.push(worker.id);
        self.write(|| self.inner.join(worker))
    }

    fn renew(&self, worker: WorkerId) -> Answer<'_, Renewed> {
        let renewed = self.write(|| self.inner.renew(worker));
        Box::pin(async move {
            let moved =
                self.joined.lock().unwrap_or_else(PoisonError::into_inner).1.contains(&worker);
            Ok(Renewed { moved, ..renewed.await? })
        })
    }

    fn leave(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.write(|| self.inner.leave(worker))
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        self.write(|| self.inner.claim(claim))
    }

    fn record(&self, lease: Lease, append: Append) -> Answer<'_, ()> {
        self.asked[Held::Records as usize].fetch_add(1, Ordering::SeqCst);
        if is_one_lost(&self.to_forget) {
            return self.answer_later(Held::Records, Box::pin(std::future::ready(Ok(()))));
        }
        let fate = self.fate_of(Write::Record(lease.run, &append.records));
        let answer = self.write_with(fate, || self.inner.record(lease, append));
        self.answer_later(Held::Records, answer)
    }

    fn transact(&self, transact: Transact) -> Answer<'_, Transacted> {
        let asked = |held: Held| self.asked[held as usize].fetch_add(1, Ordering::SeqCst);
        asked(Held::TransactionsBefore);
        Box::pin(async move {
            self.free(Held::TransactionsBefore).await;
            asked(Held::Transactions);
            let step = Arc::clone(&transact.step);
            let fate = self.fate_of(Write::Transact(transact.lease.run, &step));
            let answer = self.write_with(fate, || self.inner.transact(transact));
            if is_one_lost(&self.transaction_losses) {
                return lost(answer).await;
            }
            self.answer_later(Held::Transactions, answer).await
        })
    }

    fn settle(&self, lease: Lease, settle: Settle) -> Answer<'_, Settled> {
        let fate = self.fate_of(Write::Settle(lease.run, &settle));
        self.write_with(fate, || self.inner.settle(lease, settle))
    }

    fn signal(&self, signal: NewSignal) -> Answer<'_, Signalled> {
        self.write(|| self.inner.signal(signal))
    }

    fn inbox(&self, run: RunId, after: u64) -> Answer<'_, Inbox> {
        self.asked[Held::Looks as usize].fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.free(Held::Looks).await;
            self.counted(self.inner.inbox(run, after)).await
        })
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
        self.counted(self.inner.get(which))
    }

    fn list(&self, query: Query) -> Answer<'_, RunPage> {
        self.counted(self.inner.list(query))
    }

    fn history(&self, run: RunId, after: Option<u64>, limit: usize) -> Answer<'_, HistoryPage> {
        self.counted(self.inner.history(run, after, limit))
    }

    fn duplicates(&self, run: RunId) -> Answer<'_, Duplicates> {
        self.counted(self.inner.duplicates(run))
    }

    fn stats(&self) -> Answer<'_, Stats> {
        self.counted(self.inner.stats())
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerInfo>> {
        self.counted(self.inner.workers())
    }

    fn unawaited_standbys(&self) -> Answer<'_, u64> {
        self.inner.unawaited_standbys()
    }

    as_inner! {
        keys: Keys,
        portable: Portable,
        queues: Queues,
        schedules: Schedules,
        steer: Steer,
        notebook: Notebook,
        deletes: Delete,
        audit: Audit,
    }

    fn looks(&self) -> Option<&dyn Looks> {
        self.inner.looks()
    }
}
