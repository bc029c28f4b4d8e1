//! Starting one run.
//!
//! Owns: [`Start`], the options that one start and many share, and the checks of names and tags.
//! Never decides what a key does; the store does, in its transaction.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::gathering::{Gathering, Keyed};
use super::{Inner, RunHandle, check_names};
use crate::clock::millis;
use crate::error::{check_name, check_text};
use crate::limits::{QUEUE_DEFAULT, TAG_VALUE_BYTES_MAX, TAGS_MAX};
use crate::store::gather::first_start;
use crate::store::rules;
use crate::store::{
    self, Claimant, Claimed, End, Gather, Lease, NewKey, NewRun, Settle, StartAt, Started,
    StartedHow,
};
use crate::trace;
use crate::upkeep::cascade;
use crate::worker::tenure::Tenure;
use crate::worker::{Reserved, Shared};
use crate::{Code, Error, Fingerprint, Json, Key, OnConflict, Run, RunId, RunState, Timestamp};

/// A run that is being set up; made by [`Onward::start`](crate::Onward::start), started by `await`.
///
/// ```
/// # use onward::{OnConflict, Onward, Workflow};
/// # use std::time::Duration;
/// const MAIL: Workflow<String, ()> = Workflow::named("welcome-mail");
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// let run = onward
///     .start(MAIL, &"ada@example.com".to_owned())
///     .key("welcome-ada")
///     .key_ttl(Duration::from_secs(24 * 60 * 60))
///     .on_conflict(OnConflict::RetryFailed)
///     .delay(Duration::from_secs(600))
///     .timeout(Duration::from_secs(3600))
///     .queue("mail")
///     .priority(5)
///     .tag("tenant", "analytical-engines")
///     .await?;
/// # let _ = run; Ok(()) }
/// ```
#[must_use = "a run is started when it is awaited"]
pub struct Start<O> {
    client: Arc<Inner>,
    options: StartOptions,
    workflow: String,
    input: Result<Json, Error>,
    key: Option<Key>,
    fingerprint: Option<Fingerprint>,
    caller: Option<String>,
    output: std::marker::PhantomData<fn() -> O>,
}

/// How many answers, and how far apart, must say that a run of unknown outcome is not held before
/// that is believed: longer than any write can be under way.
const RELEASE_ANSWERS: u32 = 30;
const RELEASE_PAUSE: Duration = Duration::from_secs(1);

/// What one start and many starts have in common.
#[derive(Clone)]
pub(super) struct StartOptions {
    pub(super) queue: String,
    pub(super) lane: Option<String>,
    pub(super) priority: i32,
    pub(super) key_ttl: Option<Duration>,
    pub(super) on_conflict: OnConflict,
    pub(super) start_at: StartAt,
    pub(super) timeout: Option<Duration>,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) gathering: Gathering,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self {
            queue: QUEUE_DEFAULT.to_owned(),
            lane: None,
            priority: 0,
            key_ttl: None,
            on_conflict: OnConflict::default(),
            start_at: StartAt::Now,
            timeout: None,
            tags: BTreeMap::new(),
            gathering: Gathering::default(),
        }
    }
}

/// The options that [`Start`] and [`StartMany`](crate::StartMany) share.
macro_rules! start_options {
    () => {
        /// How long the key is kept; as long as the run unless set.
        pub fn key_ttl(mut self, ttl: Duration) -> Self {
            self.options.key_ttl = Some(ttl);
            self
        }

        /// What happens when the key is in use; the existing run is returned unless set.
        pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
            self.options.on_conflict = on_conflict;
            self
        }

        /// Does not begin before this time has passed.
        pub fn delay(mut self, delay: Duration) -> Self {
            self.options.start_at = StartAt::After(millis(delay));
            self
        }

        /// Does not begin before this time.
        pub fn at(mut self, time: impl Into<Timestamp>) -> Self {
            self.options.start_at = StartAt::At(time.into());
            self
        }

        /// The run fails with `deadline_exceeded` if it has not ended this long after its start, even
        /// if no worker can claim it. Its children have no more time than the run. A retry gives the
        /// run the full time again.
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.options.timeout = Some(timeout);
            self
        }

        /// The queue it is routed by; `default` unless set.
        pub fn queue(mut self, queue: impl Into<String>) -> Self {
            self.options.queue = queue.into();
            self
        }

        /// The lane of its queue that it is in, as a tenant's name: where the queue has a limit
        /// for each lane, lanes take turns.
        pub fn lane(mut self, lane: impl Into<String>) -> Self {
            self.options.lane = Some(lane.into());
            self
        }

        /// Higher is claimed first; 0 unless set.
        pub fn priority(mut self, priority: i32) -> Self {
            self.options.priority = priority;
            self
        }

        /// Adds a label to find it by.
        pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
            self.options.tags.insert(name.into(), value.into());
            self
        }

        /// Lets the last of many starts with one key win: the run begins when no further start has come
        /// for this long, with the input of the latest. A start after it has begun makes a new run.
        /// Needs a key; `on_conflict`, `delay` and `at` say nothing.
        ///
        /// ```
        /// # use onward::{Onward, Workflow};
        /// # use std::time::Duration;
        /// const REINDEX: Workflow<u32, ()> = Workflow::named("reindex");
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
        /// # let onward = Onward::open("memory:").await?;
        /// let quiet = Duration::from_secs(5);
        /// let first = onward.start(REINDEX, &1).key("page-7").debounce(quiet).await?;
        /// let many = onward.start_many(REINDEX, [2, 3]).key(|_| "page-7").debounce(quiet).await?;
        /// assert_eq!((many.started, many.existing), (0, 2));
        /// assert_eq!(first.status().await?.input.as_str(), "3");
        /// # Ok(()) }
        /// ```
        pub fn debounce(mut self, quiet: Duration) -> Self {
            self.options.gathering.debounce = Some(quiet);
            self
        }

        /// How long after the first start a debounced run begins at the latest, however many follow.
        pub fn debounce_max(mut self, total: Duration) -> Self {
            self.options.gathering.debounce_max = Some(total);
            self
        }

        /// Lets the first of many starts with one key win: for this long after it, each further one gives
        /// the same run, whatever its input. Needs a key; `on_conflict` says nothing.
        pub fn throttle(mut self, period: Duration) -> Self {
            self.options.gathering.throttle = Some(period);
            self
        }
    };
}
pub(super) use start_options;

impl<O> Start<O> {
    pub(super) fn new<I: Serialize>(client: Arc<Inner>, workflow: &str, input: &I) -> Self {
        Self {
            client,
            options: StartOptions::default(),
            workflow: workflow.to_owned(),
            input: Json::of(input),
            key: None,
            fingerprint: None,
            caller: None,
            output: std::marker::PhantomData,
        }
    }

    /// The caller's name for this request: starting it again gives the same run.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// What decides whether two inputs with one key are the same; the whole input unless set.
    pub fn fingerprint<T: Serialize + ?Sized>(mut self, of: &T) -> Self {
        match Json::of(of) {
            Ok(json) => self.fingerprint = Some(json.fingerprint()),
            Err(error) => self.input = Err(error),
        }
        self
    }

    /// Who asks for it, as the audit of duplicates names them; this process unless set.
    pub fn caller(mut self, caller: impl Into<String>) -> Self {
        self.caller = Some(caller.into());
        self
    }

    start_options!();

    /// Starts it as `await` does, and says how the run came about.
    ///
    /// ```
    /// # use onward::store::StartedHow;
    /// # use onward::{Onward, Workflow};
    /// const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let (run, how) = onward.start(BILL, &100).key("order-7").started().await?;
    /// assert_eq!(how, StartedHow::New);
    /// let (same, how) = onward.start(BILL, &100).key("order-7").started().await?;
    /// assert_eq!((same.id(), how), (run.id(), StartedHow::Existing));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As when it is awaited.
    pub async fn started(self) -> Result<(RunHandle<O>, StartedHow), Error> {
        self.start().await
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn client(&self) -> &Arc<Inner> {
        &self.client
    }

    pub(super) fn new_run(self) -> Result<NewRun, Error> {
        let input = self.input?;
        let key = match self.key {
            Some(key) => Some((key, self.fingerprint.unwrap_or_else(|| input.fingerprint()))),
            None => None,
        };
        let mut new = self.options.new_run(&self.client, self.workflow, input, key)?;
        if let Some(caller) = self.caller {
            new.caller = caller;
        }
        Ok(new)
    }

    async fn start(self) -> Result<(RunHandle<O>, StartedHow), Error> {
        let client = Arc::clone(&self.client);
        let new = self.new_run()?;
        let waiter = client.endings.wait(new.id);
        let started = match reserve(&client, &new) {
            Some((worker, reserved)) => {
                // In a task of the worker's: a caller that gives up, or whose runtime ends, must not
                // leave a run behind that is claimed and that nobody executes.
                let starting = Arc::clone(&worker);
                let claimed = start_claimed(Arc::clone(&client), worker, reserved, new);
                match starting.spawn(claimed).await {
                    Ok(started) => started,
                    Err(source) => Err(Error::new(Code::StoreUnavailable).because(source)),
                }
            }
            None => start_one(&client, new).await,
        };
        let started = started?;
        if let StartedHow::Replaced(_) = started.how {
            cascade(client.store.as_ref()).await;
        }
        let handle = match started.how {
            StartedHow::New | StartedHow::Claimed => {
                RunHandle::of_started(client, started.run, waiter)
            }
            StartedHow::Existing | StartedHow::Retried | StartedHow::Replaced(_) => {
                RunHandle::new(client, started.run)
            }
        };
        Ok((handle, started.how))
    }
}

fn reserve(client: &Inner, new: &NewRun) -> Option<(Arc<Shared>, Reserved)> {
    if new.start_at != StartAt::Now {
        return None;
    }
    let mut workers = client.workers().into_iter();
    workers.find_map(|worker| {
        let reserved = worker.reserve(&new.workflow, &new.queue)?;
        Some((worker, reserved))
    })
}

async fn start_one(client: &Inner, new: NewRun) -> Result<Started, Error> {
    let key = new.key.as_ref().map(|key| key.key.clone());
    let mut answers = client.store.start(vec![new]).await?;
    match answers.pop() {
        Some(answer) => answer.map_err(|error| refused(error, key.as_deref())),
        None => Err(Error::new(Code::StoreUnavailable)),
    }
}

/// Starts a run and hands it to the worker that keeps a place for it.
async fn start_claimed(
    client: Arc<Inner>,
    worker: Arc<Shared>,
    mut reserved: Reserved,
    mut new: NewRun,
) -> Result<Started, Error> {
    let claimant = reserved.claimant();
    let lease = Lease { run: new.id, worker: claimant.worker, attempt: 1 };
    reserved.enter(lease);
    let mut claimed = Box::new(Claimed {
        lease,
        run: as_claimed(&new, &claimant),
        history: Vec::new(),
        last_seq: 0,
        voided_seq: None,
        builds: BTreeMap::new(),
        signals: Vec::new(),
        signals_to: 0,
        unreadable: None,
    });
    new.claimant = Some(claimant);
    let timeout_ms = new.timeout_ms;
    let started = match start_one(&client, new).await {
        Ok(started) => started,
        Err(error) => {
            if error.code() == Code::StoreUnavailable {
                release_unknown(&client, &worker, reserved.into_tenure(), lease);
            }
            return Err(error);
        }
    };
    if started.how == StartedHow::Claimed {
        claimed.run.created_at = started.at;
        claimed.run.started_at = Some(started.at);
        claimed.run.deadline_at = rules::deadline(started.at, timeout_ms);
        worker.execute(reserved, claimed);
    }
    Ok(started)
}

/// The run as it is once its start has claimed it, but for its times.
fn as_claimed(new: &NewRun, claimant: &Claimant) -> Run {
    Run {
        state: RunState::Running,
        attempt: 1,
        worker: Some(claimant.worker),
        build: Some(claimant.build.clone()),
        queue: new.queue.clone(),
        lane: new.lane.clone(),
        priority: new.priority,
        key: new.key.as_ref().map(|key| key.key.clone()),
        tags: new.tags.clone(),
        ..Run::fresh(new.id, new.workflow.clone(), new.input.clone(), Timestamp::from_millis(0))
    }
}

/// Gives back a run that may have been started and claimed, by a write whose answer was lost: the
/// caller is told that the outcome is unknown, so nobody would execute it. In the background,
/// since the caller does not wait; more than once, since the lost write may still be under way.
/// A store that does not answer says nothing about the run, however long that lasts: its worker
/// lives on after the outage, and would hold it for ever.
fn release_unknown(client: &Arc<Inner>, worker: &Shared, tenure: Arc<Tenure>, lease: Lease) {
    let client = Arc::clone(client);
    worker.spawn(async move {
        let mut answers = 0;
        // At the end of a tenure the store takes back all of its runs.
        while answers < RELEASE_ANSWERS && !tenure.is_over() {
            let settle = Settle::new(Vec::new(), End::Released);
            match client.store.settle(lease, settle).await {
                Ok(_) => return,
                Err(store::Error::Unavailable(..)) => {}
                Err(error) => {
                    answers += 1;
                    tracing::debug!(run = %lease.run, %error, "not released yet");
                }
            }
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    });
}

/// The error of a refused start, which names the key as well as the run that has it.
pub(super) fn refused(error: store::Error, key: Option<&str>) -> Error {
    with_key(Error::from(error), key)
}

/// Names the key in an error that is about it.
pub(super) fn with_key(error: Error, key: Option<&str>) -> Error {
    match (error.code(), key) {
        (Code::KeyConflict | Code::KeyTaken, Some(key)) => error.about(format!("key {key:?}")),
        _ => error,
    }
}

impl StartOptions {
    pub(super) fn new_run(
        &self,
        client: &Inner,
        workflow: String,
        input: Json,
        key: Option<(Key, Fingerprint)>,
    ) -> Result<NewRun, Error> {
        self.check(&workflow)?;
        if let Some((key, _)) = &key {
            key.check()?;
        }
        let gather =
            self.gathering.of(key.as_ref().map_or(Keyed::No, |_| Keyed::Yes(self.key_ttl)))?;
        let start_at = match gather {
            Some(Gather::Debounce { ms, max_ms }) => first_start(ms, max_ms),
            _ => self.start_at,
        };
        let key = key.map(|(key, fingerprint)| NewKey {
            key: key.to_string(),
            fingerprint,
            ttl_ms: self.key_ttl.map(millis),
            on_conflict: self.on_conflict,
            gather,
        });
        Ok(NewRun {
            id: RunId::new(),
            workflow,
            queue: self.queue.clone(),
            lane: self.lane.clone(),
            priority: self.priority,
            input,
            key,
            start_at,
            timeout_ms: self.timeout.map(millis),
            tags: trace::tagged(&self.tags),
            caller: client.caller.clone(),
            parent: None,
            claimant: None,
        })
    }

    pub(super) fn check(&self, workflow: &str) -> Result<(), Error> {
        check_names(workflow, &self.queue)?;
        self.lane.as_deref().map_or(Ok(()), |lane| check_name("lane", lane))?;
        self.check_tags()
    }

    fn check_tags(&self) -> Result<(), Error> {
        let tags = trace::own_tags(&self.tags);
        if tags > TAGS_MAX {
            let about = format!("{tags} tags, the limit is {TAGS_MAX}");
            return Err(Error::new(Code::InvalidOption).about(about));
        }
        self.tags.iter().try_for_each(|(name, value)| {
            check_name("tag", name)?;
            check_text("tag value", value, TAG_VALUE_BYTES_MAX)
        })
    }
}

impl<O: 'static> IntoFuture for Start<O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.start().await?.0) })
    }
}

impl<O> fmt::Debug for Start<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("workflow", &self.workflow).field("key", &self.key).finish()
    }
}
