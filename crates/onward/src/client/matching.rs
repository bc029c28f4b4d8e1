//! One verb on every run that a filter fits, or that is named.
//!
//! Owns: [`Matching`] and [`SteerMany`]: bounded batches, what is counted, and the pace. Never holds
//! more than a batch in memory, and never skips a run silently.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Inner, steer};
use crate::limits::{REFUSALS_KEPT_MAX, STEER_AT_ONCE, STEER_BATCH_MAX};
use crate::store::rules::{Cancelling, cancelling, retrying};
use crate::store::steer::{pausing, resuming};
use crate::store::{self, Conflict, Filter, Query};
use crate::{Code, Error, Run, RunId};

/// Why a run is passed over that is as it should be already.
const ALREADY: &str = "already";

/// The runs that a filter fits, or that are named; made by
/// [`Onward::matching`](crate::Onward::matching) and [`Onward::these`](crate::Onward::these).
#[must_use = "nothing happens until a verb is chosen and awaited"]
pub struct Matching {
    client: Arc<Inner>,
    meant: Meant,
    only: Only,
}

/// Which runs are meant.
#[derive(Clone, Debug)]
pub(super) enum Meant {
    Fitting(Filter),
    These(Vec<RunId>),
}

/// Which of the runs that the filter fits are meant.
type Only = Option<Box<dyn Fn(&Run) -> bool + Send + Sync>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Cancel,
    Retry,
    Pause,
    Resume,
    Delete,
}

impl Matching {
    pub(super) fn new(client: Arc<Inner>, meant: Meant) -> Self {
        Self { client, meant, only: None }
    }

    /// Only those of which this is true, besides what the filter can say. Of runs that are named, all are
    /// meant.
    pub fn only(mut self, only: impl Fn(&Run) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Box::new(only));
        self
    }

    /// Asks each of them to end, as [`RunHandle::cancel`](crate::RunHandle::cancel).
    pub fn cancel(self) -> SteerMany {
        SteerMany::new(self, Verb::Cancel)
    }

    /// Lets each that failed or is stuck go on, as [`RunHandle::retry`](crate::RunHandle::retry).
    pub fn retry(self) -> SteerMany {
        SteerMany::new(self, Verb::Retry)
    }

    /// Pauses each of them, as [`RunHandle::pause`](crate::RunHandle::pause).
    pub fn pause(self) -> SteerMany {
        SteerMany::new(self, Verb::Pause)
    }

    /// Lets each that is paused go on, as [`RunHandle::resume`](crate::RunHandle::resume).
    pub fn resume(self) -> SteerMany {
        SteerMany::new(self, Verb::Resume)
    }

    /// Deletes each that has ended, as [`RunHandle::delete`](crate::RunHandle::delete).
    pub fn delete(self) -> SteerMany {
        SteerMany::new(self, Verb::Delete)
    }
}

/// A verb on many runs that is being set up; made by [`Matching`]. It goes through them from the
/// newest to the oldest, in batches. Interrupted, it is done again: what was changed is passed over.
///
/// ```
/// use onward::{Filter, Onward, RunState, Workflow};
///
/// const INDEX: Workflow<u64, ()> = Workflow::named("index");
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// # onward.start_many(INDEX, 0..10).await?;
/// let all = || Filter { workflow: Some("index".to_owned()), ..Filter::default() };
/// let would = onward.matching(all()).pause().dry_run().await?;
/// assert_eq!((would.matched, would.done), (10, 10));
/// let paused = onward
///     .matching(all())
///     .pause()
///     .pace(500) // a second
///     .on_progress(|so_far| eprintln!("{} of {}", so_far.done, so_far.matched))
///     .await?;
/// assert_eq!(paused.done, 10);
/// let again = onward.matching(all()).pause().await?;
/// assert_eq!((again.done, again.skipped["already"]), (0, 10));
/// # Ok(()) }
/// ```
#[must_use = "nothing happens until it is awaited"]
pub struct SteerMany {
    matching: Matching,
    verb: Verb,
    dry_run: bool,
    per_second: Option<u32>,
    on_progress: Option<OnProgress>,
}

/// Is told how far it has come.
type OnProgress = Box<dyn FnMut(&Steered) + Send>;

/// What a [`SteerMany`] did, or has done so far.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Steered {
    /// Runs that the filter fits.
    pub matched: u64,
    /// Runs that were changed, or would be.
    pub done: u64,
    /// Runs that were passed over, by why: `already` when there was nothing to do, else the code of
    /// the error that one alone would have met, as `run_finished`.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Runs that could not be changed for another reason.
    pub failed: u64,
    /// The first of these.
    pub failures: Vec<SteerFailure>,
}

/// A run that could not be changed.
#[derive(Debug)]
#[non_exhaustive]
pub struct SteerFailure {
    /// The run.
    pub run: RunId,
    /// Why.
    pub error: Error,
}

impl Steered {
    /// Runs that were passed over, for whatever reason.
    pub fn skipped_total(&self) -> u64 {
        self.skipped.values().sum()
    }

    fn skip(&mut self, why: &'static str) {
        *self.skipped.entry(why).or_default() += 1;
    }

    fn fail(&mut self, run: RunId, error: Error) {
        self.failed += 1;
        if self.failures.len() < REFUSALS_KEPT_MAX {
            self.failures.push(SteerFailure { run, error });
        }
    }
}

impl SteerMany {
    fn new(matching: Matching, verb: Verb) -> Self {
        Self { matching, verb, dry_run: false, per_second: None, on_progress: None }
    }

    /// Counts only: `done` is how many would be changed, as they stand now.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Changes at most so many runs a second; 0 is no limit.
    pub fn pace(mut self, per_second: u32) -> Self {
        self.per_second = Some(per_second).filter(|per_second| *per_second > 0);
        self
    }

    /// Calls back after each batch.
    pub fn on_progress(mut self, on_progress: impl FnMut(&Steered) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(on_progress));
        self
    }

    async fn steer(self) -> Result<Steered, Error> {
        match self.matching.meant.clone() {
            Meant::Fitting(filter) => self.steer_fitting(filter).await,
            Meant::These(runs) => self.steer_these(runs).await,
        }
    }

    /// Whether each allows it is not looked at before: the change itself says so.
    async fn steer_these(mut self, runs: Vec<RunId>) -> Result<Steered, Error> {
        let mut all = Steered::default();
        for some in runs.chunks(STEER_BATCH_MAX) {
            all.matched += some.len() as u64;
            self.change_all(some, &mut all).await?;
            if let Some(on_progress) = &mut self.on_progress {
                on_progress(&all);
            }
        }
        Ok(all)
    }

    async fn steer_fitting(mut self, filter: Filter) -> Result<Steered, Error> {
        let mut all = Steered::default();
        let mut query = Query { filter, before: None, limit: STEER_BATCH_MAX };
        loop {
            let page = self.matching.client.store.list(query.clone()).await?;
            query.before = page.runs.last().map(|run| run.id);
            self.steer_page(page.runs, &mut all).await?;
            if let Some(on_progress) = &mut self.on_progress {
                on_progress(&all);
            }
            if !page.more {
                return Ok(all);
            }
        }
    }

    async fn steer_page(&mut self, runs: Vec<Run>, all: &mut Steered) -> Result<(), Error> {
        let mut changes = Vec::new();
        let only = |run: &Run| self.matching.only.as_ref().is_none_or(|only| only(run));
        for run in runs.into_iter().filter(only) {
            all.matched += 1;
            match self.verb.would_change(&run) {
                Ok(true) => changes.push(run.id),
                Ok(false) => all.skip(ALREADY),
                Err(error) => all.skip(Error::from(error).code().as_str()),
            }
        }
        self.change_all(&changes, all).await
    }

    /// Changes these, at the pace that was asked for.
    async fn change_all(&mut self, runs: &[RunId], all: &mut Steered) -> Result<(), Error> {
        if self.dry_run {
            all.done += runs.len() as u64;
            return Ok(());
        }
        let at_once =
            self.per_second.map_or(STEER_AT_ONCE, |pace| STEER_AT_ONCE.min(pace as usize));
        for some in runs.chunks(at_once.max(1)) {
            let began = Instant::now();
            self.change(some, all).await?;
            if let Some(per_second) = self.per_second {
                let share = Duration::from_secs(1) * some.len() as u32 / per_second;
                tokio::time::sleep_until(began + share).await;
            }
        }
        Ok(())
    }

    /// Changes a few runs at once. A store that does not answer ends it all.
    async fn change(&mut self, runs: &[RunId], all: &mut Steered) -> Result<(), Error> {
        let mut changes = JoinSet::new();
        for run in runs.iter().copied() {
            let (client, verb) = (Arc::clone(&self.matching.client), self.verb);
            changes.spawn(async move { (run, verb.change(&client, run).await) });
        }
        while let Some(changed) = changes.join_next().await {
            let lost = |error| Error::new(Code::StoreUnavailable).because(error);
            match changed.map_err(lost)? {
                (_, Ok(())) => all.done += 1,
                (run, Err(error)) => match error.code() {
                    code @ (Code::RunFinished
                    | Code::RunNotEnded
                    | Code::RunNotFailed
                    | Code::RunUndone
                    | Code::RunNotFound) => all.skip(code.as_str()),
                    _ if error.is_retryable() => return Err(error),
                    Code::VerbUnsupported => return Err(error),
                    _ => all.fail(run, error),
                },
            }
        }
        Ok(())
    }
}

impl Verb {
    /// Whether it has something to do on this run, as it stands.
    fn would_change(self, run: &Run) -> Result<bool, store::Error> {
        match self {
            Verb::Cancel => Ok(cancelling(run, true)? != Cancelling::Already),
            // Whether it has turned back is in its history, which only the store looks at: a run that
            // has is counted by a dry run, and passed over by the real one.
            Verb::Retry => retrying(run, false),
            Verb::Pause => pausing(run),
            Verb::Resume => resuming(run),
            Verb::Delete if run.state.is_final() => Ok(true),
            Verb::Delete => Err(store::Error::Conflict(Conflict::NotEnded { run: run.id })),
        }
    }

    async fn change(self, client: &Inner, run: RunId) -> Result<(), Error> {
        match self {
            Verb::Cancel => steer::cancel(client, run).await,
            Verb::Retry => steer::retry(client, run).await,
            Verb::Pause => steer::pause(client, run).await,
            Verb::Resume => steer::resume(client, run).await,
            Verb::Delete => steer::delete(client, run).await.map(drop),
        }
    }
}

impl IntoFuture for SteerMany {
    type Output = Result<Steered, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.steer())
    }
}

impl fmt::Debug for Matching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matching").field("meant", &self.meant).finish_non_exhaustive()
    }
}

impl fmt::Debug for SteerMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = &self.verb;
        f.debug_struct("SteerMany")
            .field("verb", verb)
            .field("matching", &self.matching)
            .finish_non_exhaustive()
    }
}
