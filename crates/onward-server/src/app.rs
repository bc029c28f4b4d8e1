//! What the handlers share.
//!
//! Owns: the client, the options, and the counts that are shown for a second before they are counted
//! again. Never a fact about a run.

use std::future::Future;
use std::sync::Arc;

use onward::store::{Minute, Store};
use onward::{Onward, QueueUse, Run, Stats, Timestamp, WorkerInfo};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::ended::{Counted, Ended};
use crate::guard::rate::Rates;
use crate::limits::{QUEUES_COUNTED, STATS_KEPT, WRONG_TOKENS_BURST, WRONG_TOKENS_PER_SECOND};
use crate::metrics::Counts;
use crate::operation::Operator;
use crate::options::Options;
use crate::problem::Problem;
use crate::stream::Changes;

/// How far a server is with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It serves.
    Up,
    /// It is asked to stop: it serves on, and says on `/readyz` that others are to be asked.
    Leaving,
    /// It takes no more connections, and lets those that are open finish.
    Closing,
}

/// What the clones share.
pub(crate) struct Inner {
    pub(crate) onward: Onward,
    pub(crate) options: Options,
    pub(crate) rates: Rates,
    pub(crate) wrong_tokens: Rates,
    pub(crate) counts: Counts,
    pub(crate) changes: Changes,
    /// Says when the server is asked to stop, and when it closes.
    pub(crate) phase: watch::Receiver<Phase>,
    stats: Kept<Stats>,
    workers: Kept<Vec<WorkerInfo>>,
    minutes: Kept<Option<Vec<Minute>>>,
    oldest_due: Kept<Vec<(String, Timestamp)>>,
    ended: Ended,
    ends: Kept<Vec<Counted>>,
    operator: Operator,
}

/// The server, as its handlers see it.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

/// What was looked up, for as long as it is worth something.
#[derive(Debug)]
struct Kept<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Kept<T> {
    /// What is kept, or what is found now.
    async fn or(&self, look: impl Future<Output = Result<T, Problem>>) -> Result<Arc<T>, Problem> {
        let mut known = self.0.lock().await;
        if let Some((at, kept)) = &*known
            && at.elapsed() < STATS_KEPT
        {
            return Ok(Arc::clone(kept));
        }
        let found = Arc::new(look.await?);
        *known = Some((Instant::now(), Arc::clone(&found)));
        Ok(found)
    }
}

impl App {
    pub(crate) fn new(onward: Onward, options: Options, phase: watch::Receiver<Phase>) -> Self {
        let rates = Rates::new(options.rate_burst, options.rate_per_second);
        let ended = Ended::since(onward.store().clock().now());
        Self(Arc::new(Inner {
            onward,
            options,
            rates,
            wrong_tokens: Rates::new(WRONG_TOKENS_BURST, WRONG_TOKENS_PER_SECOND),
            counts: Counts::default(),
            changes: Changes::new(),
            phase,
            stats: Kept::default(),
            workers: Kept::default(),
            minutes: Kept::default(),
            oldest_due: Kept::default(),
            ended,
            ends: Kept::default(),
            operator: Operator::default(),
        }))
    }

    /// Resolves when the server closes; never in a router that is mounted elsewhere.
    pub(crate) async fn closed(&self) {
        let mut phase = self.phase.clone();
        if phase.wait_for(|phase| *phase == Phase::Closing).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Executes changes of many runs from here on, if it may change anything and is there to stay.
    pub(crate) async fn operate(&self) {
        if !self.options.read_only && !self.options.only_answers {
            self.operator.begin(&self.onward).await;
        }
    }

    /// Leaves changes of many runs to others.
    pub(crate) async fn rest(&self) {
        self.operator.end().await;
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.onward.store().as_ref()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.store().clock().now()
    }

    /// Counts of runs, and the workers, at most a second old. Whoever comes while they are counted
    /// waits for that count.
    pub(crate) async fn stats(&self) -> Result<Arc<Stats>, Problem> {
        self.stats.or(async { Ok(self.onward.stats().await?) }).await
    }

    /// The workers, at most a second old: what a reason needs, without a count of every run.
    pub(crate) async fn workers(&self) -> Result<Arc<Vec<WorkerInfo>>, Problem> {
        self.workers.or(async { Ok(self.store().workers().await?) }).await
    }

    /// What happened in each minute from the one of this time on, at most a second old; `None` where
    /// the store cannot tell.
    pub(crate) async fn minutes(
        &self,
        since: Timestamp,
    ) -> Result<Arc<Option<Vec<Minute>>>, Problem> {
        let look = async {
            match self.store().looks() {
                Some(looks) => Ok(Some(looks.minutes(since).await?)),
                None => Ok(None),
            }
        };
        self.minutes.or(look).await
    }

    /// Since when the longest waiting run of each queue is due, for up to [`QUEUES_COUNTED`] queues,
    /// at most a second old.
    pub(crate) async fn oldest_due(&self) -> Result<Arc<Vec<(String, Timestamp)>>, Problem> {
        self.oldest_due.or(self.look_at_queues()).await
    }

    async fn look_at_queues(&self) -> Result<Vec<(String, Timestamp)>, Problem> {
        let (mut found, mut after, mut seen) = (Vec::new(), None::<String>, 0);
        if self.store().queues().is_none() {
            return Ok(found);
        }
        loop {
            let page = self.onward.queues(after.as_deref()).await?;
            seen += page.queues.len();
            after = page.queues.last().map(|counts| counts.queue.name.clone());
            let due = page.queues.into_iter();
            found.extend(due.filter_map(|it| Some((it.queue.name, it.oldest_due_at?))));
            if !page.more || seen >= QUEUES_COUNTED {
                return Ok(found);
            }
        }
    }

    /// The runs that ended since this server began, by how they did, at most a second old; none where
    /// the store cannot tell.
    pub(crate) async fn ends(&self) -> Result<Arc<Vec<Counted>>, Problem> {
        let look = async {
            match self.store().looks() {
                Some(looks) => self.ended.count(looks, self.now()).await,
                None => Ok(Vec::new()),
            }
        };
        self.ends.or(look).await
    }

    /// What is counted in the queue of a run, and in its lane, if the queue is set up.
    pub(crate) async fn queue_use(&self, run: &Run) -> Result<Option<QueueUse>, Problem> {
        match self.store().queues() {
            Some(queues) if !run.state.is_final() => {
                Ok(queues.queue_use(run.queue.clone(), run.lane.clone()).await?)
            }
            _ => Ok(None),
        }
    }

    /// Which store it is.
    pub(crate) fn store_kind(&self) -> &'static str {
        let store = self.store().coded().map_or(self.store(), |coded| coded.inner().as_ref());
        let name = format!("{store:?}");
        match name {
            _ if store.sqlite_file().is_some() => "sqlite",
            name if name.starts_with("Postgres") => "postgres",
            name if name.starts_with("Memory") => "memory",
            _ => "other",
        }
    }
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}
