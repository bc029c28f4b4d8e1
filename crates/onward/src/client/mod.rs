//! The client: starting runs and looking at them.
//!
//! Owns: [`Onward`], the way in. Never executes a run; it hands a fresh one to a worker of this
//! process that has a free place, so that start and claim share a commit.

mod callback;
mod copy;
mod fork;
mod gathering;
mod handle;
#[cfg(feature = "sqlite")]
mod inside;
#[cfg(feature = "postgres")]
mod inside_postgres;
mod matching;
mod once;
mod open;
mod queue;
#[cfg(feature = "schedules")]
mod schedule;
mod signal;
#[cfg(feature = "postgres")]
mod signal_postgres;
mod start;
mod start_many;
mod steer;
mod step_key;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

pub use copy::{Copied, CopyProgress, CopyTo};
pub use fork::ForkRun;
pub use handle::RunHandle;
use matching::Meant;
pub use matching::{Matching, SteerFailure, SteerMany, Steered};
pub use once::{Held, Once};
pub use open::Open;
pub use queue::{QueueHandle, QueueSetup};
#[cfg(feature = "schedules")]
pub use schedule::{Backfill, Backfilled, ScheduleHandle, ScheduleSetup, ScheduleStart};
pub use signal::SendSignal;
pub use start::Start;
pub use start_many::{Progress, Refusal, StartMany, StartedMany};

use crate::ending::Endings;
use crate::error::check_name;
use crate::keyed::KeyPlace;
use crate::limits::PRUNE_REST_MAX;
use crate::store::{CodedKeys, Filter, Keys, Prune, Query, RunPage, Stats, Store, Which};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::store::{NewRun, NewSignal};
use crate::watch::Watch;
use crate::worker::{Shared, WorkerBuilder};
use crate::{Code, Error, Json, Key, RunId, Workflow};

/// A store of runs, opened: start runs, look at them, and serve them with workers.
///
/// Cloning it is cheap, and all clones are one.
///
/// ```
/// use onward::{Ctx, Failure, Onward, Workflow};
///
/// const DOUBLE: Workflow<u32, u32> = Workflow::named("double");
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// let onward = Onward::open("memory:").await?;
/// let worker = onward
///     .worker()
///     .serve(DOUBLE, async |ctx: Ctx, n: u32| {
///         ctx.step("double", async |_| Ok::<_, Failure>(n * 2)).await
///     })
///     .start()
///     .await?;
///
/// let run = onward.start(DOUBLE, &21).key("the-answer").await?;
/// assert_eq!(run.result().await?, 42);
///
/// // The same key again is the same run.
/// let again = onward.start(DOUBLE, &21).key("the-answer").await?;
/// assert_eq!(again.id(), run.id());
/// # worker.shutdown().await }
/// ```
#[derive(Clone)]
pub struct Onward {
    inner: Arc<Inner>,
}

/// What the clones of a client share.
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    /// Where the keys of its steps and of `once` are.
    pub(crate) keys: KeyPlace,
    /// How starts from here are named in the audit of duplicates.
    caller: String,
    /// The workers of this process.
    workers: Mutex<Vec<Weak<Shared>>>,
    /// Whoever waits in this process for a run to end.
    pub(crate) endings: Arc<Endings>,
    /// Who of this client's workers and waiters is awake, in a test.
    pub(crate) watch: Option<Arc<Watch>>,
}

impl Inner {
    pub(crate) fn add_worker(&self, worker: &Arc<Shared>) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|known| known.strong_count() > 0);
        workers.push(Arc::downgrade(worker));
    }

    /// Whether a worker of this process executes the run, and will tell how that went.
    fn executes(&self, run: RunId) -> bool {
        self.workers().iter().any(|worker| worker.executes(run))
    }

    /// A run as it is written past the store, in a transaction of the user's.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn stored_run(&self, new: NewRun) -> Result<NewRun, Error> {
        Ok(match self.store.coded() {
            Some(coded) => coded.seal_run(new)?,
            None => new,
        })
    }

    /// A signal as it is written past the store, in a transaction of the user's.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn stored_signal(&self, new: NewSignal) -> Result<NewSignal, Error> {
        Ok(match self.store.coded() {
            Some(coded) => coded.seal_signal(new)?,
            None => new,
        })
    }

    fn workers(&self) -> Vec<Arc<Shared>> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Onward {
    /// Opens a store by its URL: `sqlite:PATH`, `postgres://…` or `memory:`, as features allow.
    ///
    /// # Errors
    /// When it is awaited: `unknown_store_url`, or why the store cannot be opened.
    pub fn open(url: &str) -> Open {
        Open::new(url)
    }

    /// A client on a store that the caller made.
    ///
    /// ```
    /// use onward::store::MemoryStore;
    /// use onward::{Onward, TestClock};
    /// use std::sync::Arc;
    ///
    /// let clock = TestClock::new();
    /// let onward = Onward::with_store(Arc::new(MemoryStore::with_clock(Arc::new(clock.clone()))));
    /// # let _ = onward;
    /// ```
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self::watched(store, None)
    }

    /// A client whose workers and waiters are watched, in a test.
    pub(crate) fn watched(store: Arc<dyn Store>, watch: Option<Arc<Watch>>) -> Self {
        let keys = KeyPlace::in_store(Arc::clone(&store));
        Self::of(store, keys, watch)
    }

    /// A client on the same store that keeps its step keys elsewhere, as [`Open::keys`] does.
    ///
    /// ```
    /// use onward::Onward;
    /// use onward::store::MemoryStore;
    /// use std::sync::Arc;
    ///
    /// let shared = Arc::new(MemoryStore::new());
    /// let onward = Onward::with_store(Arc::new(MemoryStore::new())).with_keys(shared);
    /// # let _ = onward;
    /// ```
    #[must_use]
    pub fn with_keys(&self, keys: Arc<dyn Keys>) -> Self {
        let watch = self.inner.watch.clone();
        let place = KeyPlace::elsewhere(keys);
        let place = match self.inner.store.coded() {
            None => place,
            Some(coded) => {
                KeyPlace::elsewhere(Arc::new(CodedKeys::new(place, Arc::clone(coded.coding()))))
            }
        };
        Self::of(Arc::clone(&self.inner.store), place, watch)
    }

    fn of(store: Arc<dyn Store>, keys: KeyPlace, watch: Option<Arc<Watch>>) -> Self {
        let caller = crate::worker::place();
        Self {
            inner: Arc::new(Inner {
                store,
                keys,
                caller,
                workers: Mutex::default(),
                endings: Arc::default(),
                watch,
            }),
        }
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// A worker to set up.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(Arc::clone(&self.inner))
    }

    /// Starts a run. Set its options, then await it: when that returns, the run is on disk.
    pub fn start<I: serde::Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> Start<O> {
        Start::new(Arc::clone(&self.inner), workflow.name(), input)
    }

    /// Starts a run for each item, in bounded batches and bounded memory. With a key for each it
    /// can be interrupted and done again without a duplicate.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// const INDEX: Workflow<u64, ()> = Workflow::named("index");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let done = onward
    ///     .start_many(INDEX, 0..10_000)
    ///     .key(|id| format!("item-{id}"))
    ///     .on_progress(|progress| eprintln!("{} items", progress.items))
    ///     .await?;
    /// assert_eq!(done.started, 10_000);
    /// # Ok(()) }
    /// ```
    pub fn start_many<I, O, T>(&self, workflow: Workflow<I, O>, items: T) -> StartMany<I>
    where
        I: serde::Serialize + Send + 'static,
        T: IntoIterator<Item = I>,
        T::IntoIter: Send + 'static,
    {
        StartMany::of_iter(Arc::clone(&self.inner), workflow.name(), items.into_iter())
    }

    /// As [`start_many`](Onward::start_many), over a stream.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// const INDEX: Workflow<u64, ()> = Workflow::named("index");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let items = futures::stream::iter(0..1_000); // rows of a query, lines of a file
    /// let done = onward.start_stream(INDEX, items).key(|id| format!("item-{id}")).await?;
    /// assert_eq!(done.started, 1_000);
    /// # Ok(()) }
    /// ```
    pub fn start_stream<I, O, S>(&self, workflow: Workflow<I, O>, items: S) -> StartMany<I>
    where
        I: serde::Serialize + Send + 'static,
        S: futures_core::Stream<Item = I> + Send + 'static,
    {
        StartMany::of_stream(Arc::clone(&self.inner), workflow.name(), items)
    }

    /// A handle on a run, by its id. It is not looked up yet.
    ///
    /// ```
    /// # use onward::{Onward, RunState, Workflow};
    /// # const INDEX: Workflow<u64, u64> = Workflow::named("index");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let id = onward.start(INDEX, &7).await?.id().to_string();
    /// let run = onward.run(id.parse()?); // an id from a log or a request
    /// assert_eq!(run.status().await?.state, RunState::Queued);
    /// # Ok(()) }
    /// ```
    pub fn run(&self, id: RunId) -> RunHandle<Json> {
        RunHandle::new(Arc::clone(&self.inner), id)
    }

    /// A handle on the run of this workflow that has this key.
    ///
    /// ```
    /// # use onward::{Code, Onward, Workflow};
    /// const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(BILL, &100).key("order-7").await?;
    /// assert_eq!(onward.by_key(BILL, "order-7").await?.id(), run.id());
    ///
    /// let error = onward.by_key(BILL, "order-8").await.unwrap_err();
    /// assert_eq!(error.code(), Code::KeyNotFound);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `key_not_found` when no run has it, or none has it any more.
    pub async fn by_key<I, O>(
        &self,
        workflow: Workflow<I, O>,
        key: impl Into<Key>,
    ) -> Result<RunHandle<O>, Error> {
        let key = key.into();
        let workflow = workflow.name().to_owned();
        let which = Which::Key { workflow: workflow.clone(), key: key.to_string() };
        match self.inner.store.get(which).await? {
            Some(run) => Ok(RunHandle::new(Arc::clone(&self.inner), run.id)),
            None => {
                Err(Error::new(Code::KeyNotFound)
                    .about(format!("{key:?} of workflow {workflow:?}")))
            }
        }
    }

    /// A page of runs, newest first. Ask for the next page with `before` set to its last run.
    ///
    /// ```
    /// # use onward::{Filter, Onward, Query, RunState};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let filter = Filter { states: vec![RunState::Failed], ..Filter::default() };
    /// let mut query = Query { filter, limit: 50, ..Query::default() };
    /// loop {
    ///     let page = onward.list(query.clone()).await?;
    ///     for run in &page.runs {
    ///         println!("{} {}", run.id, run.workflow);
    ///     }
    ///     query.before = page.runs.last().map(|run| run.id);
    ///     if !page.more {
    ///         break;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(&self, query: Query) -> Result<RunPage, Error> {
        let limit = match query.limit {
            0 => crate::limits::PAGE_ROWS_DEFAULT,
            limit => limit,
        };
        Ok(self.inner.store.list(Query { limit, ..query }).await?)
    }

    /// The runs that a filter fits, to cancel, retry, pause, resume or delete all of them.
    ///
    /// ```
    /// use onward::{Filter, Onward, RunState};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let failed = Filter { states: vec![RunState::Failed], ..Filter::default() };
    /// let retried = onward.matching(failed).retry().await?;
    /// println!("{} go on", retried.done);
    /// # Ok(()) }
    /// ```
    pub fn matching(&self, filter: Filter) -> Matching {
        Matching::new(Arc::clone(&self.inner), Meant::Fitting(filter))
    }

    /// These runs, to cancel, retry, pause, resume or delete all of them. One that does not allow it is
    /// counted and passed over.
    pub fn these(&self, runs: Vec<RunId>) -> Matching {
        Matching::new(Arc::clone(&self.inner), Meant::These(runs))
    }

    /// Counts of runs by state and queue, and the workers.
    ///
    /// ```
    /// # use onward::{Onward, RunState, Workflow};
    /// # const INDEX: Workflow<u64, ()> = Workflow::named("index");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// onward.start(INDEX, &7).queue("bulk").await?;
    /// let stats = onward.stats().await?;
    /// assert_eq!(stats.runs[&RunState::Queued], 1);
    /// assert_eq!(stats.queued["bulk"], 1);
    /// assert!(stats.workers.is_empty(), "which is why nothing happens");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn stats(&self) -> Result<Stats, Error> {
        Ok(self.inner.store.stats().await?)
    }

    /// Deletes runs that ended long ago, in bounded batches; returns how many.
    ///
    /// ```
    /// # use onward::{Onward, Prune};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let month = Duration::from_secs(30 * 24 * 60 * 60);
    /// let deleted = onward.prune(Prune::older_than(month)).await?;
    /// # assert_eq!(deleted, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the store does not answer. What was deleted by then stays deleted.
    pub async fn prune(&self, prune: Prune) -> Result<u64, Error> {
        let mut runs = 0;
        loop {
            let began = Instant::now();
            let pruned = self.inner.store.prune(prune.clone()).await?;
            runs += pruned.runs;
            if !pruned.more {
                return Ok(runs);
            }
            tokio::time::sleep(began.elapsed().min(PRUNE_REST_MAX)).await;
        }
    }

    /// Copies every run into another store, with its history, traces, key and tags, in bounded
    /// batches; then compares every one of them. The source is not changed. Interrupted, it is
    /// done again and goes on: a run that is there and the same is passed over.
    ///
    /// Stop every worker and every caller of both stores first. A live worker is refused; a caller
    /// that starts runs while the copy goes on is noticed, one that does so afterwards cannot be.
    ///
    /// ```
    /// # use onward::{Onward, RunState, Workflow};
    /// # const INDEX: Workflow<u64, ()> = Workflow::named("index");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let (small, large) = (Onward::open("memory:").await?, Onward::open("memory:").await?);
    /// small.start(INDEX, &7).key("item-7").await?;
    /// let copied = small.copy_to(&large).await?;
    /// assert!(copied.verified);
    /// assert_eq!(copied.runs[&RunState::Queued], 1);
    /// assert!(large.by_key(INDEX, "item-7").await.is_ok());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it is awaited: `store_served` while a live worker serves one of the stores,
    /// `copy_conflict` when the destination has a run that differs, or its key for another run,
    /// `store_changed` when somebody was at work meanwhile, or why a store does not answer.
    pub fn copy_to(&self, to: &Onward) -> CopyTo {
        // As they are stored: a copy needs no keys, and is the same to the last byte.
        let stored = |store: &Arc<dyn Store>| match store.coded() {
            Some(coded) => Arc::clone(coded.inner()),
            None => Arc::clone(store),
        };
        CopyTo::new(stored(&self.inner.store), stored(&to.inner.store))
    }
}

impl fmt::Debug for Onward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Onward").field("store", &self.inner.store).finish()
    }
}

/// Checks the names of a start.
fn check_names(workflow: &str, queue: &str) -> Result<(), Error> {
    check_name("workflow", workflow)?;
    check_name("queue", queue)
}
