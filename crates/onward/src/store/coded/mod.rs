//! A store whose payloads are encoded: a decorator around any other.
//!
//! Owns: [`CodedStore`], and that every payload goes through its codecs, in and out. Never decides
//! anything about a run, and never touches what the store looks for: ids, names, keys, tags and times.
//!
//! Who reads for people gets a payload that cannot be read as it is stored, and the rest of the answer;
//! who would act on it gets [`Error::Unreadable`], or a claimed run that says so.

mod beside;
mod keys;
mod pass;
mod steering;
mod visit;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::keys::CodedKeys;
use self::pass::{Opening, Sealing};
use super::around::as_inner;
use super::{
    Answer, Append, Audit, Claim, Claims, Conflict, Delete, Duplicates, Error, HistoryPage, Inbox,
    Keys, Lease, Looks, NewRun, NewSignal, NewWorker, Notebook, Place, Portable, Prune, Pruned,
    Query, Queues, Renewed, RunPage, Schedules, Settle, Settled, Signal, Signalled, Started, Stats,
    Steer, Store, Sweep, Swept, Topic, Transact, Transacted, Waiter, Which, WorkerInfo,
};
use crate::codec::Coding;
use crate::keyed::KeyPlace;
use crate::{Clock, Fingerprint, Json, Record, Run, RunId, WorkerId};

/// A store around another, which encodes payloads on their way in and decodes them on their way out.
///
/// [`Open::codec`](crate::Open::codec) makes one; this is for a store that you made yourself.
///
/// ```
/// use onward::Onward;
/// use onward::codec::Coding;
/// use onward::store::{CodedStore, MemoryStore};
/// use std::sync::Arc;
///
/// # fn codecs() -> Coding { Coding::new() }
/// let store = CodedStore::around(Arc::new(MemoryStore::new()), codecs());
/// let onward = Onward::with_store(Arc::new(store));
/// # let _ = onward;
/// ```
pub struct CodedStore {
    inner: Arc<dyn Store>,
    coding: Arc<Coding>,
    keys: CodedKeys,
}

impl CodedStore {
    /// A store that keeps in `inner` what these codecs make of its payloads.
    pub fn around(inner: Arc<dyn Store>, coding: Coding) -> Self {
        let coding = Arc::new(coding);
        let keys = CodedKeys::new(KeyPlace::in_store(Arc::clone(&inner)), Arc::clone(&coding));
        Self { inner, coding, keys }
    }

    /// The store inside, with payloads as they are stored.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    pub(crate) fn coding(&self) -> &Arc<Coding> {
        &self.coding
    }

    /// A run as it is started in the store inside.
    pub(crate) fn seal_run(&self, mut new: NewRun) -> Result<NewRun, Error> {
        let mut sealing = Sealing::new(&self.coding);
        visit::new_run(&mut new, &mut sealing);
        sealing.done()?;
        Ok(new)
    }

    /// A signal as it is sent in the store inside.
    pub(crate) fn seal_signal(&self, mut new: NewSignal) -> Result<NewSignal, Error> {
        let mut sealing = Sealing::new(&self.coding);
        visit::new_signal(&mut new, &mut sealing);
        sealing.done()?;
        Ok(new)
    }

    fn seal_records(&self, run: RunId, records: &mut [Record]) -> Result<(), Error> {
        let mut sealing = Sealing::new(&self.coding);
        records.iter_mut().for_each(|record| visit::record(run, record, &mut sealing));
        sealing.done()
    }

    /// A run for people.
    fn open_run(&self, mut run: Run) -> Run {
        visit::run(&mut run, &mut Opening::new(&self.coding));
        run
    }

    async fn start_all(&self, runs: Vec<NewRun>) -> Result<Vec<Result<Started, Error>>, Error> {
        let plain: Vec<_> = runs.iter().map(fingerprint_of).collect();
        let sealed: Result<Vec<_>, _> = runs.into_iter().map(|new| self.seal_run(new)).collect();
        let sealed = sealed?;
        let mut answers = self.inner.start(sealed.clone()).await?;
        let refused = |answer: &Result<_, _>| {
            matches!(answer, Err(Error::Conflict(Conflict::KeyInput { .. })))
        };
        // A key that was taken before there was a codec has the fingerprint of that time.
        let again: Vec<_> = (0..answers.len().min(sealed.len()))
            .filter(|at| refused(&answers[*at]) && fingerprint_of(&sealed[*at]) != plain[*at])
            .collect();
        if again.is_empty() {
            return Ok(answers);
        }
        let runs = again.iter().map(|at| with_fingerprint(sealed[*at].clone(), plain[*at]));
        let second = self.inner.start(runs.collect()).await?;
        for (at, answer) in again.into_iter().zip(second) {
            answers[at] = answer;
        }
        Ok(answers)
    }

    async fn send(&self, new: NewSignal) -> Result<Signalled, Error> {
        let plain = new.fingerprint;
        let sealed = self.seal_signal(new)?;
        match self.inner.signal(sealed.clone()).await {
            // As for a run's key: it may have come before there was a codec.
            Err(Error::Conflict(Conflict::KeyInput { .. })) if sealed.fingerprint != plain => {
                self.inner.signal(NewSignal { fingerprint: plain, ..sealed }).await
            }
            answer => answer,
        }
    }

    async fn look_into(&self, run: RunId, after: u64) -> Result<Inbox, Error> {
        let mut inbox = self.inner.inbox(run, after).await?;
        let moved = |signal: &Signal| {
            Coding::sent_to(signal.body.as_str()).is_some_and(|sent_to| sent_to != run)
        };
        let mut opening = Opening::new(&self.coding);
        if inbox.signals.iter().any(moved)
            && let Some(run) = self.inner.get(Which::Id(run)).await?
        {
            opening = Opening::of_run(&self.coding, &run);
        }
        visit::inbox(run, &mut inbox, &mut opening);
        opening.done()?;
        Ok(inbox)
    }

    async fn transact_one(&self, transact: Transact) -> Result<Transacted, Error> {
        let run = transact.lease.run;
        let place = Arc::new(CodedPlace {
            inner: Arc::clone(&transact.place),
            coding: Arc::clone(&self.coding),
            run,
            failed: Mutex::default(),
        });
        let transact = Transact { place: Arc::clone(&place) as Arc<dyn Place>, ..transact };
        let transacted = self.inner.transact(transact).await?;
        if let Some(error) = place.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        match transacted {
            Transacted::Recorded(mut record) => {
                let mut opening = Opening::new(&self.coding);
                visit::record(run, &mut record, &mut opening);
                opening.done()?;
                Ok(Transacted::Recorded(record))
            }
            other => Ok(other),
        }
    }
}

fn fingerprint_of(new: &NewRun) -> Option<Fingerprint> {
    new.key.as_ref().map(|key| key.fingerprint)
}

fn with_fingerprint(mut new: NewRun, fingerprint: Option<Fingerprint>) -> NewRun {
    if let (Some(key), Some(fingerprint)) = (&mut new.key, fingerprint) {
        key.fingerprint = fingerprint;
    }
    new
}

/// The place of a transactional step's record, which is encoded as it is made.
struct CodedPlace {
    inner: Arc<dyn Place>,
    coding: Arc<Coding>,
    run: RunId,
    /// What stopped a codec: then the transaction is undone, and tried again.
    failed: Mutex<Option<Error>>,
}

impl Place for CodedPlace {
    fn is_wanted(&self) -> bool {
        self.inner.is_wanted()
    }

    fn place(&self, result: Json) -> Option<Record> {
        let mut record = self.inner.place(result)?;
        let mut sealing = Sealing::new(&self.coding);
        visit::record(self.run, &mut record, &mut sealing);
        match sealing.done() {
            Ok(()) => Some(record),
            Err(error) => {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                None
            }
        }
    }
}

impl fmt::Debug for CodedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("CodedStore");
        all.field("inner", &self.inner).field("codecs", &self.coding).finish()
    }
}

impl Store for CodedStore {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }

    fn idle_look_every(&self) -> Duration {
        self.inner.idle_look_every()
    }

    #[cfg(feature = "postgres")]
    fn postgres(&self) -> Option<&super::PostgresStore> {
        self.inner.postgres()
    }

    fn sqlite_file(&self) -> Option<&Path> {
        self.inner.sqlite_file()
    }

    fn coded(&self) -> Option<&CodedStore> {
        Some(self)
    }

    fn start(&self, runs: Vec<NewRun>) -> Answer<'_, Vec<Result<Started, Error>>> {
        Box::pin(self.start_all(runs))
    }

    fn join(&self, worker: NewWorker) -> Answer<'_, ()> {
        self.inner.join(worker)
    }

    fn renew(&self, worker: WorkerId) -> Answer<'_, Renewed> {
        self.inner.renew(worker)
    }

    fn leave(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.inner.leave(worker)
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        Box::pin(async move {
            let mut claims = self.inner.claim(claim).await?;
            for claimed in &mut claims.runs {
                let mut opening = Opening::of_run(&self.coding, &claimed.run);
                visit::claimed(claimed, &mut opening);
                claimed.unreadable = opening.unreadable().map(Box::new);
            }
            Ok(claims)
        })
    }

    fn record(&self, lease: Lease, mut append: Append) -> Answer<'_, ()> {
        match self.seal_records(lease.run, &mut append.records) {
            Ok(()) => self.inner.record(lease, append),
            Err(error) => refused(error),
        }
    }

    fn transact(&self, transact: Transact) -> Answer<'_, Transacted> {
        Box::pin(self.transact_one(transact))
    }

    fn settle(&self, lease: Lease, mut settle: Settle) -> Answer<'_, Settled> {
        let mut sealing = Sealing::new(&self.coding);
        visit::settle(lease.run, &mut settle, &mut sealing);
        match sealing.done() {
            Ok(()) => self.inner.settle(lease, settle),
            Err(error) => refused(error),
        }
    }

    fn signal(&self, signal: NewSignal) -> Answer<'_, Signalled> {
        Box::pin(self.send(signal))
    }

    fn inbox(&self, run: RunId, after: u64) -> Answer<'_, Inbox> {
        Box::pin(self.look_into(run, after))
    }

    fn cancel(&self, run: RunId) -> Answer<'_, Run> {
        Box::pin(async move { Ok(self.open_run(self.inner.cancel(run).await?)) })
    }

    fn retry(&self, run: RunId) -> Answer<'_, Run> {
        Box::pin(async move { Ok(self.open_run(self.inner.retry(run).await?)) })
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        self.inner.sweep(sweep)
    }

    fn prune(&self, prune: Prune) -> Answer<'_, Pruned> {
        self.inner.prune(prune)
    }

    fn wait(&self, topic: Topic) -> Waiter {
        self.inner.wait(topic)
    }

    fn get(&self, which: Which) -> Answer<'_, Option<Run>> {
        Box::pin(async move {
            let run = self.inner.get(which).await?;
            Ok(run.map(|run| self.open_run(run)))
        })
    }

    fn list(&self, query: Query) -> Answer<'_, RunPage> {
        Box::pin(async move {
            let RunPage { runs, more } = self.inner.list(query).await?;
            Ok(RunPage { runs: runs.into_iter().map(|run| self.open_run(run)).collect(), more })
        })
    }

    fn history(&self, run: RunId, after: Option<u64>, limit: usize) -> Answer<'_, HistoryPage> {
        Box::pin(async move {
            let mut page = self.inner.history(run, after, limit).await?;
            let mut opening = Opening::new(&self.coding);
            page.records.iter_mut().for_each(|record| visit::record(run, record, &mut opening));
            Ok(page)
        })
    }

    fn duplicates(&self, run: RunId) -> Answer<'_, Duplicates> {
        self.inner.duplicates(run)
    }

    fn stats(&self) -> Answer<'_, Stats> {
        self.inner.stats()
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerInfo>> {
        self.inner.workers()
    }

    fn unawaited_standbys(&self) -> Answer<'_, u64> {
        self.inner.unawaited_standbys()
    }

    fn keys(&self) -> Option<&dyn Keys> {
        self.inner.keys()?;
        Some(&self.keys)
    }

    as_inner! {
        portable: Portable,
        schedules: Schedules,
        steer: Steer,
        notebook: Notebook,
    }

    fn queues(&self) -> Option<&dyn Queues> {
        self.inner.queues()
    }

    fn looks(&self) -> Option<&dyn Looks> {
        self.inner.looks()
    }

    fn deletes(&self) -> Option<&dyn Delete> {
        self.inner.deletes()
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.inner.audit()
    }
}

fn refused<'a, T: Send + 'a>(error: Error) -> Answer<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}
