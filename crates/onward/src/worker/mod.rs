//! The worker: claims runs and executes them.
//!
//! Owns: the set-up of a worker, its start and its end. `claiming` takes runs from the store, as
//! `intake` chooses, `crew` keeps track of their drivers, `tenure` holds the lease, and upkeep sweeps. Never
//! decides what a run does.

mod build;
mod claiming;
pub(crate) mod crew;
mod intake;
pub(crate) mod tenure;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument;

use self::crew::{Crew, Place};
use self::tenure::Tenure;
use crate::client::Inner;
use crate::driver::{self, Drove, Handler, Setting, Stop};
use crate::ending::Endings;
use crate::error::check_name;
use crate::keyed::KeyPlace;
use crate::limits::{
    CANCEL_GRACE_DEFAULT, CONCURRENCY_DEFAULT, CONCURRENCY_MAX, LEASE_DEFAULT, LEASE_MIN,
    LINGER_DEFAULT, QUEUE_DEFAULT, SHUTDOWN_GRACE_DEFAULT,
};
use crate::store::{self, Claimed, End, Lease, Settle, Store, rules};
use crate::trace;
use crate::watch::{Watch, spawn_watched};
use crate::{Code, Ctx, Error, Failure, Json, RunId, WorkerId, Workflow};

/// A worker that is being set up; made by [`Onward::worker`](crate::Onward::worker).
///
/// ```
/// use onward::{Ctx, Failure, Onward, Workflow};
///
/// const GREET: Workflow<String, String> = Workflow::named("greet");
///
/// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
///     ctx.step("compose", async |_| Ok::<_, Failure>(format!("Hello, {name}"))).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// let onward = Onward::open("memory:").await?;
/// let worker = onward.worker().serve(GREET, greet).concurrency(10).start().await?;
/// let run = onward.start(GREET, &"Ada".to_owned()).await?;
/// assert_eq!(run.result().await?, "Hello, Ada");
/// worker.shutdown().await?;
/// # Ok(()) }
/// ```
#[must_use = "a worker does nothing until it is started"]
pub struct WorkerBuilder {
    client: Arc<Inner>,
    handlers: HashMap<String, Handler>,
    served_twice: Option<String>,
    queues: Vec<String>,
    concurrency: usize,
    lease: Duration,
    linger: Duration,
    shutdown_grace: Duration,
    cancel_grace: Duration,
    build: Option<String>,
}

impl WorkerBuilder {
    pub(crate) fn new(client: Arc<Inner>) -> Self {
        Self {
            client,
            handlers: HashMap::new(),
            served_twice: None,
            queues: vec![QUEUE_DEFAULT.to_owned()],
            concurrency: CONCURRENCY_DEFAULT,
            lease: LEASE_DEFAULT,
            linger: LINGER_DEFAULT,
            shutdown_grace: SHUTDOWN_GRACE_DEFAULT,
            cancel_grace: CANCEL_GRACE_DEFAULT,
            build: None,
        }
    }

    /// Executes runs of `workflow` with `function`.
    pub fn serve<I, O, F, Fut>(self, workflow: Workflow<I, O>, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        self.serve_with(workflow.name().to_owned(), handler(function))
    }

    /// Executes runs of the workflow of this name with a function whose types are erased.
    pub(crate) fn serve_with(mut self, name: String, handler: Handler) -> Self {
        if self.handlers.insert(name.clone(), handler).is_some() {
            self.served_twice = Some(name);
        }
        self
    }

    /// The queues it serves; only `default` unless set.
    pub fn queues<Q: Into<String>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// How many runs it executes at once; 100 unless set. Runs that sleep or wait do not count.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// How long the worker's lease lasts without renewal; 10 s unless set. It is renewed three times in
    /// that time. When it has expired, other workers take the runs over. Give all workers of a store the
    /// same: each looks after the others only once in its own.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Waits that end within this time keep the run in memory; 1 s unless set.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// How long [`Worker::shutdown`] lets step bodies finish; 25 s unless set.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.shutdown_grace = grace;
        self
    }

    /// How long the bodies of a cancelled run may go on; 5 s unless set.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.cancel_grace = grace;
        self
    }

    /// The name of this build of the code; derived from the executable unless set. A run whose
    /// history does not fit under one build is tried again by a worker of another.
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = Some(build.into());
        self
    }

    /// Joins the store and starts claiming.
    ///
    /// # Errors
    /// `nothing_served`, `workflow_served_twice`, `invalid_name`, `invalid_option`, or that the
    /// store does not answer.
    pub async fn start(self) -> Result<Worker, Error> {
        self.check()?;
        let build = match self.build.clone() {
            Some(build) => build,
            None => build::of_executable().await.to_owned(),
        };
        let shared = Arc::new(Shared {
            store: Arc::clone(&self.client.store),
            keys: self.client.keys.clone(),
            workflows: self.handlers.keys().cloned().collect(),
            handlers: self.handlers,
            queues: self.queues,
            build: build.into(),
            lease: self.lease,
            linger: self.linger,
            cancel_grace: self.cancel_grace,
            shutdown_grace: self.shutdown_grace,
            concurrency: self.concurrency,
            endings: Arc::clone(&self.client.endings),
            tenure: Mutex::default(),
            intake_shut: AtomicBool::new(false),
            runtime: Handle::current(),
            watch: self.client.watch.clone(),
        });
        let tenure = shared.join().await?;
        let id = tenure.worker;
        self.client.add_worker(&shared);
        let (stop, stopped) = watch::channel(false);
        let serving = claiming::serve(Arc::clone(&shared), claiming::Served::of(tenure), stopped);
        let serving = spawn_watched(&shared.runtime, self.client.watch.as_ref(), serving);
        Ok(Worker { id, shared, stop, serving, grace: self.shutdown_grace })
    }

    fn check(&self) -> Result<(), Error> {
        if let Some(name) = &self.served_twice {
            return Err(Error::new(Code::WorkflowServedTwice).about(name.clone()));
        }
        if self.handlers.is_empty() {
            return Err(Error::new(Code::NothingServed));
        }
        self.handlers.keys().try_for_each(|name| check_name("workflow", name))?;
        self.queues.iter().try_for_each(|name| check_name("queue", name))?;
        self.build.iter().try_for_each(|name| check_name("build", name))?;
        let option = |about: String| Err(Error::new(Code::InvalidOption).about(about));
        if self.queues.is_empty() {
            return option("a worker serves at least one queue".to_owned());
        }
        if self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX {
            return option(format!(
                "concurrency {} is not 1 to {CONCURRENCY_MAX}",
                self.concurrency
            ));
        }
        if self.lease < LEASE_MIN {
            return option(format!("a lease of {:?} is below {LEASE_MIN:?}", self.lease));
        }
        Ok(())
    }
}

/// A worker that serves runs, until [`shutdown`](Worker::shutdown).
///
/// Dropping it leaves the worker serving for as long as the runtime lives.
pub struct Worker {
    id: WorkerId,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    grace: Duration,
}

impl Worker {
    /// The worker's id when it started. It gets another if it ever loses its lease.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Stops claiming, lets step bodies finish within the grace time, gives back at once what is
    /// left, and returns. Their runs go on elsewhere, or at the next start.
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Onward, Workflow};
    /// # use std::time::Duration;
    /// # const MAIL: Workflow<String, ()> = Workflow::named("mail");
    /// # async fn mail(_: Ctx, _: String) -> Result<(), Failure> { Ok(()) }
    /// # async fn serve(onward: Onward) -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = onward.worker().serve(MAIL, mail).shutdown_grace(Duration::from_secs(10));
    /// let worker = worker.start().await?;
    /// tokio::signal::ctrl_c().await?;
    /// worker.shutdown().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the store does not answer; then the runs are taken over after one lease.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.stop.send_replace(true);
        if let Some(tenure) = self.shared.current_tenure() {
            tenure.crew.stop_all(Stop::Release);
        }
        // Claiming ends with the claim that is under way, whose runs are given back below.
        let _ = self.serving.await;
        // Meanwhile it may have joined again under a new id.
        let Some(tenure) = self.shared.current_tenure() else { return Ok(()) };
        tenure.crew.stop_all(Stop::Release);
        if tokio::time::timeout(self.grace, tenure.crew.emptied()).await.is_err() {
            tracing::warn!(worker = %self.id, "grace time over; dropping what still executes");
            tenure.crew.stop_all(Stop::Drop);
        }
        tenure.leave().await.map_err(Error::from)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("id", &self.id).finish()
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workflows: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("WorkerBuilder").field("workflows", &workflows).finish()
    }
}

/// What the parts of one worker share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    keys: KeyPlace,
    handlers: HashMap<String, Handler>,
    workflows: Vec<String>,
    queues: Vec<String>,
    build: Arc<str>,
    lease: Duration,
    linger: Duration,
    cancel_grace: Duration,
    shutdown_grace: Duration,
    concurrency: usize,
    endings: Arc<Endings>,
    tenure: Mutex<Option<Arc<Tenure>>>,
    /// Set while runs are queued that have not been claimed, or a suspect is to be alone: then a
    /// fresh start must not jump the queue.
    intake_shut: AtomicBool,
    /// Where the worker was started: all that is its own is executed there. A run may be started from a
    /// runtime that lives no longer than that start.
    runtime: Handle,
    /// Who of the client is awake, in a test.
    watch: Option<Arc<Watch>>,
}

/// A workflow function with its types erased.
pub(crate) fn handler<I, O, F, Fut>(function: F) -> Handler
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    Arc::new(move |ctx: Ctx, input: Json| {
        let returned = function(ctx, input.read::<I>()?);
        Ok(Box::pin(async move { driver::output(&returned.await?) }))
    })
}

/// How this process calls itself: its host and process id.
pub(crate) fn place() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = std::env::var("HOSTNAME").unwrap_or(host);
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{host}:{}", std::process::id())
}

impl Shared {
    /// Joins the store under a fresh id.
    async fn join(self: &Arc<Self>) -> Result<Arc<Tenure>, Error> {
        let worker = crate::store::NewWorker {
            id: WorkerId::new(),
            build: self.build.to_string(),
            place: place(),
            queues: self.queues.clone(),
            workflows: self.workflows.clone(),
            lease_ms: crate::clock::millis(self.lease),
            concurrency: u32::try_from(self.concurrency).unwrap_or(u32::MAX),
        };
        let (id, asked) = (worker.id, Instant::now());
        let crew = Crew::new(self.concurrency);
        self.store.join(worker).await?;
        let tenure = Tenure::begin(Arc::clone(&self.store), id, crew, self.lease, asked)
            .map_err(|source| Error::new(Code::WorkerStopped).because(source))?;
        *self.tenure.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&tenure));
        Ok(tenure)
    }

    fn current_tenure(&self) -> Option<Arc<Tenure>> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A place for a run that is about to be started, if this worker would claim it at once.
    pub(crate) fn reserve(&self, workflow: &str, queue: &str) -> Option<Reserved> {
        let shut = self.intake_shut.load(std::sync::atomic::Ordering::SeqCst);
        if shut || !self.handlers.contains_key(workflow) || !self.queues.iter().any(|q| q == queue)
        {
            return None;
        }
        let tenure =
            self.current_tenure().filter(|tenure| tenure.is_fresh() && !tenure.is_leaving())?;
        let place = tenure.crew.take_place()?;
        Some(Reserved { place, tenure, build: Arc::clone(&self.build) })
    }

    /// Whether a driver of this worker has the run.
    pub(crate) fn executes(&self, run: RunId) -> bool {
        self.current_tenure().is_some_and(|tenure| tenure.crew.has(run))
    }

    /// Executes work that belongs to this worker where the worker itself is executed.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Gives a run back that nobody executes, again for as long as the outcome is unknown.
    fn give_back(&self, tenure: &Arc<Tenure>, lease: Lease) {
        self.runtime.spawn(give_back(Arc::clone(&self.store), Arc::clone(tenure), lease));
    }

    /// Starts the driver of a claimed run.
    pub(crate) fn execute(self: &Arc<Self>, mut reserved: Reserved, claimed: Box<Claimed>) {
        let Some(handler) = self.handlers.get(&claimed.run.workflow).map(Arc::clone) else {
            return;
        };
        let control = reserved.place.enter(claimed.lease);
        let suspected = rules::is_suspect(claimed.run.crashes);
        if suspected {
            reserved.tenure.crew.suspect(claimed.lease);
        }
        let setting = Setting {
            store: Arc::clone(&self.store),
            keys: self.keys.clone(),
            tenure: Arc::clone(&reserved.tenure),
            build: Arc::clone(&self.build),
            linger: self.linger,
            cancel_grace: self.cancel_grace,
            suspected,
            watch: self.watch.clone(),
        };
        let endings = Arc::clone(&self.endings);
        let held = Held {
            store: Arc::clone(&self.store),
            lease: claimed.lease,
            tenure: Arc::clone(&reserved.tenure),
            runtime: self.runtime.clone(),
            settled: false,
        };
        // Boxed: it is large, and tokio moves a task about before it runs and when it has ended.
        let driving = Box::pin(async move {
            setting.tenure.crew.until_alone(claimed.lease, claimed.run.crashes).await;
            let span = trace::of_attempt(&claimed);
            driver::drive(setting, claimed, handler, control).instrument(span).await
        });
        spawn_watched(&self.runtime, self.watch.as_ref(), async move {
            // Moved in, so that it is dropped with the task however that ends.
            let mut held = held;
            let mut ending = None;
            match driving.await {
                Drove::Settled(how) => {
                    held.settled = true;
                    ending = how;
                }
                Drove::LeaseLost => held.tenure.end(),
                Drove::Dropped => {}
            }
            let run = held.lease.run;
            drop(held);
            // The place first: a waiter that is told to look must not find the driver again.
            drop(reserved);
            endings.tell(run, ending);
        });
    }
}

/// A run that this worker holds. Whatever ends its driver without a settle, a fault of the engine
/// included, gives the run back: a live worker must not hold what nobody executes.
struct Held {
    store: Arc<dyn Store>,
    lease: Lease,
    tenure: Arc<Tenure>,
    runtime: Handle,
    settled: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        // At the end of a tenure the store takes back all of its runs.
        if self.settled || self.tenure.is_over() {
            return;
        }
        let (store, tenure) = (Arc::clone(&self.store), Arc::clone(&self.tenure));
        self.runtime.spawn(give_back(store, tenure, self.lease));
    }
}

/// Gives a run back, again for as long as the outcome is unknown.
async fn give_back(store: Arc<dyn Store>, tenure: Arc<Tenure>, lease: Lease) {
    for pause in driver::pauses() {
        let settle = Settle::new(Vec::new(), End::Released);
        let released = store.settle(lease, settle).await;
        if tenure.is_over() || !matches!(released, Err(store::Error::Unavailable(..))) {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// A place that is kept for a run.
pub(crate) struct Reserved {
    place: Place,
    tenure: Arc<Tenure>,
    build: Arc<str>,
}

impl Reserved {
    /// Enters the run that the place is kept for, so that nobody takes its lease for one that is not
    /// executed.
    pub(crate) fn enter(&mut self, lease: Lease) {
        self.place.enter(lease);
    }

    /// Gives the place up, for others, and says in which tenure it was kept.
    pub(crate) fn into_tenure(self) -> Arc<Tenure> {
        self.tenure
    }

    pub(crate) fn claimant(&self) -> crate::store::Claimant {
        crate::store::Claimant { worker: self.tenure.worker, build: self.build.to_string() }
    }
}
