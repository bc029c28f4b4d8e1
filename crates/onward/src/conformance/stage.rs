//! The stage on which a case plays: a fresh store, a clock moved by hand, and workers.
//!
//! Owns: how a case makes runs, workers and records, and how it looks at all that a store shows.
//! Never knows which store it is.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

pub use super::sample::*;
pub use super::snapshot::Snapshot;
use crate::limits::PAGE_ROWS_MAX;
use crate::store::{
    Answer, Claim, ClaimMode, Claimant, Claimed, Claims, Conflict, End, Error, ExpiredLeases,
    Lease, MemoryStore, NewRun, NewWorker, Renewed, Settle, Settled, Started, Store, Sweep, Swept,
    Which,
};
use crate::{Clock, Record, Run, RunId, RunState, TestClock, Timestamp, WorkerId};

/// How long a lease lasts on the stage.
pub const LEASE_MS: i64 = 10_000;

/// How many runs its workers say that they execute at once.
pub const CONCURRENCY: u32 = 8;

/// The workflow that runs and workers have, unless a case says otherwise.
pub const WORKFLOW: &str = "index-attachment";

/// The queue that runs and workers have, unless a case says otherwise.
pub const QUEUE: &str = "default";

/// The build that workers have, unless a case says otherwise.
pub const BUILD: &str = "build-1";

/// How a store is opened for a case. The value lives as long as the case, so it may hold a
/// temporary folder.
pub trait Harness: Sized + Send + Sync + 'static {
    /// A fresh, empty store that takes its times from `clock`.
    fn open(clock: TestClock) -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// A second handle on the same data, as another process would have it. A store that lives
    /// in one process gives the first again.
    fn other(&self) -> Arc<dyn Store> {
        self.store()
    }
}

/// A fresh store and its clock.
pub struct Stage {
    /// The store.
    pub store: Arc<dyn Store>,
    /// A second handle on the same data, where the store supports it.
    pub other: Arc<dyn Store>,
    /// The store's clock.
    pub clock: TestClock,
    _harness: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("store", &self.store).finish()
    }
}

impl Stage {
    /// Opens a fresh store.
    pub async fn open<H: Harness>() -> Self {
        let clock = TestClock::new();
        let harness = H::open(clock.clone()).await;
        let (store, other) = (harness.store(), harness.other());
        Self { store, other, clock, _harness: Box::new(harness) }
    }

    /// A fresh reference store on the same clock, to copy from and to.
    pub fn reference(&self) -> Self {
        let clock = self.clock.clone();
        let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
        Self { store: store.clone(), other: store, clock, _harness: Box::new(()) }
    }

    /// Moves the clock forward.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time that many milliseconds from now.
    pub fn in_ms(&self, ms: u64) -> Timestamp {
        self.now() + Duration::from_millis(ms)
    }

    /// Starts a run and gives the store's answer.
    pub async fn try_start(&self, run: NewRun) -> Result<Started, Error> {
        let mut answers = self.store.start(vec![run]).await?;
        assert_eq!(answers.len(), 1, "one run, one answer");
        answers.remove(0)
    }

    /// Starts a run that must not be refused.
    pub async fn start(&self, run: NewRun) -> RunId {
        self.try_start(run).await.unwrap().run
    }

    /// Joins a worker of the usual build.
    pub async fn worker(&self) -> Worker {
        self.worker_of(BUILD).await
    }

    /// Joins a worker of this build.
    pub async fn worker_of(&self, build: &str) -> Worker {
        let worker = Worker::new(Arc::clone(&self.store), build);
        self.store.join(worker.entry()).await.unwrap();
        worker
    }

    /// Joins a worker that was marked lost, and the one that swept it.
    pub async fn lost_worker(&self) -> (Worker, Worker) {
        let (lost, live) = (self.worker().await, self.worker().await);
        self.lose(&lost, &live).await;
        (lost, live)
    }

    /// Lets every lease expire but the sweeper's, and has the sweeper mark the workers lost.
    pub async fn lose(&self, lost: &Worker, sweeper: &Worker) -> Swept {
        self.pass(LEASE_MS as u64 + 1);
        sweeper.renew().await.unwrap();
        let swept = sweeper.sweep().await;
        assert!(swept.lost.contains(&lost.id), "an expired worker is marked lost");
        swept
    }

    /// Starts a run and has the worker claim it.
    pub async fn running(&self, worker: &Worker) -> Lease {
        let run = self.start(new_run()).await;
        worker.take(run).await
    }

    /// Starts a run, has the worker claim it, and takes the worker's lease away. The run is
    /// queued again; a late write comes under the lease that is given back.
    pub async fn stale(&self) -> (Lease, Worker) {
        let (old, new) = (self.worker().await, self.worker().await);
        let lease = self.running(&old).await;
        self.lose(&old, &new).await;
        (lease, new)
    }

    /// A run that settled this way in its first attempt.
    pub async fn settled(&self, worker: &Worker, end: End) -> Lease {
        let lease = self.running(worker).await;
        self.settle(lease, end).await.unwrap();
        lease
    }

    /// Records under a lease.
    pub fn record(&self, lease: Lease, records: Vec<Record>) -> Answer<'_, ()> {
        self.store.record(lease, records.into())
    }

    /// Settles with no further records.
    pub fn settle(&self, lease: Lease, end: End) -> Answer<'_, Settled> {
        self.store.settle(lease, Settle::new(Vec::new(), end))
    }

    /// The run, which must be there.
    pub async fn run(&self, run: RunId) -> Run {
        self.store.get(Which::Id(run)).await.unwrap().unwrap()
    }

    /// The run's state.
    pub async fn state(&self, run: RunId) -> RunState {
        self.run(run).await.state
    }

    /// The run that has this key in the usual workflow.
    pub async fn by_key(&self, key: &str) -> Option<RunId> {
        let which = Which::Key { workflow: WORKFLOW.to_owned(), key: key.to_owned() };
        self.store.get(which).await.unwrap().map(|run| run.id)
    }

    /// The run's whole history, voided records included.
    pub async fn history(&self, run: RunId) -> Vec<Record> {
        let page = self.store.history(run, None, PAGE_ROWS_MAX).await.unwrap();
        assert!(!page.more, "a case's history fits a page");
        page.records
    }

    /// All that the store shows.
    pub async fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.store.as_ref()).await
    }

    /// Asserts that the store shows what it showed before.
    pub async fn assert_unchanged(&self, before: &Snapshot) {
        assert_eq!(*before, self.snapshot().await, "nothing may have changed");
    }
}

/// A worker on the stage.
#[derive(Debug)]
pub struct Worker {
    /// Its name.
    pub id: WorkerId,
    /// Its build.
    pub build: String,
    /// Its handle on the store.
    pub store: Arc<dyn Store>,
    ticket: AtomicI64,
}

impl Worker {
    /// A worker that has not joined.
    pub fn new(store: Arc<dyn Store>, build: &str) -> Self {
        Self { id: WorkerId::new(), build: build.to_owned(), store, ticket: AtomicI64::new(0) }
    }

    /// What it joins with.
    pub fn entry(&self) -> NewWorker {
        NewWorker {
            id: self.id,
            build: self.build.clone(),
            place: "stage".to_owned(),
            queues: vec![QUEUE.to_owned()],
            workflows: vec![WORKFLOW.to_owned()],
            lease_ms: LEASE_MS,
            concurrency: CONCURRENCY,
        }
    }

    /// As a claimant of a start.
    pub fn claimant(&self) -> Option<Claimant> {
        Some(Claimant { worker: self.id, build: self.build.clone() })
    }

    /// Its next claim, not yet made.
    pub fn next_claim(&self, limit: usize) -> Claim {
        Claim {
            worker: self.id,
            ticket: self.ticket.fetch_add(1, Ordering::Relaxed),
            build: self.build.clone(),
            queues: vec![QUEUE.to_owned()],
            workflows: vec![WORKFLOW.to_owned()],
            limit,
            mode: ClaimMode::Ordinary,
        }
    }

    /// Claims up to `limit` ordinary runs.
    pub async fn claim(&self, limit: usize) -> Claims {
        self.store.claim(self.next_claim(limit)).await.unwrap()
    }

    /// Claims one suspect.
    pub async fn claim_suspect(&self) -> Claims {
        let claim = Claim { mode: ClaimMode::Suspect, ..self.next_claim(1) };
        self.store.claim(claim).await.unwrap()
    }

    /// Claims what must be this one run.
    pub async fn take(&self, run: RunId) -> Lease {
        self.take_whole(run).await.lease
    }

    /// Claims what must be this one run, with its history.
    pub async fn take_whole(&self, run: RunId) -> Claimed {
        let mut claims = self.claim(1).await;
        assert_eq!(ids(&claims), [run], "the claim takes this run");
        claims.runs.remove(0)
    }

    /// Asserts that there is nothing for it to claim, suspect or not.
    pub async fn assert_nothing_to_claim(&self) {
        assert_eq!(ids(&self.claim(10).await), [], "nothing is there to claim");
        assert_eq!(ids(&self.claim_suspect().await), [], "no suspect is there to claim");
    }

    /// Renews its lease.
    pub fn renew(&self) -> Answer<'_, Renewed> {
        self.store.renew(self.id)
    }

    /// Sweeps, expired leases included.
    pub async fn sweep(&self) -> Swept {
        let swept = self.store.sweep(self.next_sweep()).await.unwrap();
        // A hint of some stores.
        Swept { next_at: None, ..swept }
    }

    /// Its sweep, expired leases included, not yet made.
    pub fn next_sweep(&self) -> Sweep {
        Sweep { worker: self.id, expired: ExpiredLeases::Take }
    }
}

/// The runs of a claim, in its order.
pub fn ids(claims: &Claims) -> Vec<RunId> {
    claims.runs.iter().map(|claimed| claimed.run.id).collect()
}

/// The sequence numbers and steps of a history.
pub fn steps(history: &[Record]) -> Vec<(u64, &str)> {
    history.iter().map(|record| (record.seq, record.step.as_str())).collect()
}

/// Asserts that the writer was told that its lease is lost.
#[track_caller]
pub fn assert_lost<T: fmt::Debug>(answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::LeaseLost)), "expected LeaseLost, got {answer:?}");
}

/// The number of concurrent calls that a busy store answers within its time limits.
pub const AT_ONCE_MAX: usize = 50;

/// Asserts that the write was refused with this conflict.
#[track_caller]
pub fn assert_conflict<T: fmt::Debug>(answer: Result<T, Error>, expected: Conflict) {
    match answer {
        Err(Error::Conflict(conflict)) => assert_eq!(conflict, expected),
        other => panic!("expected {expected:?}, got {other:?}"),
    }
}
