//! A handle on one run.
//!
//! Owns: [`RunHandle`]: waiting for a run's end, looking at it, and the operators' verbs. Never
//! keeps what it saw.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Inner;
use super::signal::SendSignal;
use crate::ending::{Ending, EndingWaiter};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::{Duplicates, Inbox, InboxRest, Signal, Topic, Which};
use crate::why::{Around, Why, why};
use crate::{Code, Error, Json, Record, RecordKind, Run, RunId, RunState};

/// A run, to wait for, look at and steer.
///
/// ```
/// use onward::{Code, Ctx, Failure, Onward, RunState, Workflow};
///
/// const CHARGE: Workflow<u32, String> = Workflow::named("charge");
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// # let worker = onward.worker().serve(CHARGE, async |ctx: Ctx, cents: u32| {
/// #     ctx.step("charge", async |_| match cents {
/// #         0 => Err(Failure::fatal("nothing to charge").code("empty")),
/// #         _ => Ok("receipt".to_owned()),
/// #     }).await
/// # }).start().await?;
/// let run = onward.start(CHARGE, &0).key("order-7").await?;
/// let error = run.result().await.unwrap_err();
/// assert_eq!(error.code(), Code::RunFailed);
/// assert!(error.failure().is_some_and(|failure| failure.is("empty")));
///
/// assert_eq!(run.status().await?.state, RunState::Failed);
/// assert_eq!(run.history().await?.len(), 1);
/// println!("{}", run.why().await?);
///
/// // Mend what was wrong, then let it go on from the step that failed.
/// run.retry().await?;
/// # run.ended().await?;
/// # worker.shutdown().await }
/// ```
pub struct RunHandle<O> {
    pub(super) client: Arc<Inner>,
    pub(super) id: RunId,
    /// Registered before the run was started, so that its end cannot have been missed and the
    /// first wait needs no look at the store.
    started: Mutex<Option<EndingWaiter>>,
    output: PhantomData<fn() -> O>,
}

impl<O> RunHandle<O> {
    pub(super) fn new(client: Arc<Inner>, id: RunId) -> Self {
        Self { client, id, started: Mutex::default(), output: PhantomData }
    }

    pub(super) fn of_started(client: Arc<Inner>, id: RunId, waiter: EndingWaiter) -> Self {
        Self { client, id, started: Mutex::new(Some(waiter)), output: PhantomData }
    }

    /// The run's id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// The same run, with the type that its output is read as.
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Onward, Workflow};
    /// # const DOUBLE: Workflow<u32, u32> = Workflow::named("double");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let function = async |_: Ctx, n: u32| Ok::<_, Failure>(n * 2);
    /// # let worker = onward.worker().serve(DOUBLE, function).start().await?;
    /// # let id = onward.start(DOUBLE, &21).await?.id();
    /// // By its id alone, a run's output is any JSON.
    /// let output: u32 = onward.run(id).of_type().result().await?;
    /// assert_eq!(output, 42);
    /// # worker.shutdown().await }
    /// ```
    #[must_use]
    pub fn of_type<P>(self) -> RunHandle<P> {
        RunHandle::new(self.client, self.id)
    }

    /// The current state of the run. If the run continues as another with `continue_as`, this is the
    /// last of these runs, with its own id.
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn status(&self) -> Result<Run, Error> {
        super::steer::last(&self.client, self.id).await
    }

    /// The current state of the run with this id, even if it continues as another run: then
    /// `continued_as` is the id of that run.
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Onward, RunState, Workflow};
    /// const COUNT: Workflow<u32, u32> = Workflow::named("count");
    ///
    /// async fn count(ctx: Ctx, number: u32) -> Result<u32, Failure> {
    ///     if number < 3 { ctx.continue_as(COUNT, &(number + 1)) } else { Ok(number) }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let worker = onward.worker().serve(COUNT, count).start().await?;
    /// let run = onward.start(COUNT, &1).await?;
    /// assert_eq!(run.result().await?, 3);
    /// assert_eq!(run.status().await?.input.as_str(), "3"); // the last
    /// let first = run.own_status().await?;
    /// assert_eq!((first.id, first.input.as_str()), (run.id(), "1"));
    /// assert!(first.continued_as.is_some());
    /// # worker.shutdown().await }
    /// ```
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn own_status(&self) -> Result<Run, Error> {
        self.look(self.id).await
    }

    /// Every record of the run, in order, those that a retry voided included.
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn history(&self) -> Result<Vec<Record>, Error> {
        let mut history = Vec::new();
        loop {
            let after = history.last().map(|record: &Record| record.seq);
            let page = self.client.store.history(self.id, after, PAGE_ROWS_MAX);
            let page = page.await.map_err(|error| Error::from(error).of_run(self.id))?;
            history.extend(page.records);
            if !page.more {
                return Ok(history);
            }
        }
    }

    /// The starts with this run's key that were suppressed.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(BILL, &100).key("order-7").await?;
    /// onward.start(BILL, &100).key("order-7").await?;
    ///
    /// let duplicates = run.duplicates().await?;
    /// assert_eq!(duplicates.count, 1);
    /// assert!(duplicates.latest[0].same_input);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn duplicates(&self) -> Result<Duplicates, Error> {
        let duplicates = self.client.store.duplicates(self.id).await;
        duplicates.map_err(|error| Error::from(error).of_run(self.id))
    }

    /// Asks the run to end. A body that executes is told within a second and has a few more to finish.
    /// If the run continues as another, the last of these runs is asked.
    ///
    /// ```
    /// # use onward::{Onward, RunState, Workflow};
    /// # const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(BILL, &100).await?;
    /// run.cancel().await?;
    /// assert_eq!(run.status().await?.state, RunState::Cancelled); // it had not begun
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `run_finished` when it ended otherwise, `run_not_found`, or that the store does not answer.
    pub async fn cancel(&self) -> Result<(), Error> {
        super::steer::cancel(&self.client, self.id).await
    }

    /// Lets a failed or stuck run go on from the step that failed, which gets all its tries again.
    /// Whatever succeeded stays as it is. If a child's failure ended it, the child is retried too, and
    /// the run waits for its new end. If the run continues as another, the last of these runs is
    /// retried.
    ///
    /// # Errors
    /// `run_not_failed`, `run_undone` when it has turned back, `run_not_found`, or that the store does
    /// not answer.
    pub async fn retry(&self) -> Result<(), Error> {
        super::steer::retry(&self.client, self.id).await
    }

    /// Deletes the run, which must have ended, with its history and its key; says whether it was there.
    ///
    /// ```
    /// # use onward::{Code, Onward, Workflow};
    /// # const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(BILL, &100).key("order-7").await?;
    /// assert_eq!(run.delete().await.unwrap_err().code(), Code::RunNotEnded);
    /// run.cancel().await?;
    /// assert!(run.delete().await?);
    /// assert!(onward.by_key(BILL, "order-7").await.is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `run_not_ended`, `verb_unsupported`, or that the store does not answer.
    pub async fn delete(&self) -> Result<bool, Error> {
        super::steer::delete(&self.client, self.id).await
    }

    /// Frees the key of the run, which must have ended, so that the next start with it makes a new
    /// run; says whether the run had it. The run itself stays, and keeps its results.
    ///
    /// ```
    /// # use onward::{Code, Onward, Workflow};
    /// # const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(BILL, &100).key("order-7").await?;
    /// assert_eq!(run.release_key().await.unwrap_err().code(), Code::RunNotEnded);
    /// run.cancel().await?;
    /// assert!(run.release_key().await?);
    /// let again = onward.start(BILL, &100).key("order-7").await?;
    /// assert_ne!(again.id(), run.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `run_not_ended`, `verb_unsupported`, or that the store does not answer.
    pub async fn release_key(&self) -> Result<bool, Error> {
        super::steer::release_key(&self.client, self.id).await
    }

    /// Sends the run a signal, which its function gets from [`Ctx::signal`](crate::Ctx::signal).
    /// It is kept until then. Sent when it is awaited.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # const EXPENSE: Workflow<u64, String> = Workflow::named("expense");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(EXPENSE, &4200).await?;
    /// run.signal("approved", &true).key("click-1").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Awaited, it fails with `run_finished` when the run has ended, `key_conflict` when the key
    /// came with another value, `signals_full`, `run_not_found`, or that the store does not answer.
    pub fn signal<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> SendSignal {
        SendSignal::new(Arc::clone(&self.client), self.id, name, value)
    }

    /// The signals that came for the run and that nothing in it has taken yet, in the order in which they
    /// came: as many as [`SIGNALS_MAX`](crate::limits::SIGNALS_MAX). How its children ended is not among
    /// them.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # const EXPENSE: Workflow<u64, String> = Workflow::named("expense");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(EXPENSE, &4200).await?;
    /// run.signal("aproved", &true).await?;
    /// assert_eq!(run.signals_untaken().await?[0].name, "aproved");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `run_not_found`, `payload_unreadable`, or that the store does not answer.
    pub async fn signals_untaken(&self) -> Result<Vec<Signal>, Error> {
        let mut untaken = Vec::new();
        let mut after = 0;
        loop {
            let Inbox { signals, rest, .. } = self.client.store.inbox(self.id, after).await?;
            after = signals.last().map_or(after, |last| last.no);
            untaken.extend(signals.into_iter().filter(Signal::is_for_function));
            if rest != InboxRest::More {
                break;
            }
        }
        let mut after = None;
        while !untaken.is_empty() {
            let page = self.client.store.history(self.id, after, PAGE_ROWS_MAX).await?;
            let arrivals = page.records.iter().filter(|it| it.entry.kind() == RecordKind::Arrived);
            let taken: HashSet<_> = arrivals.map(|record| record.step.as_str()).collect();
            untaken.retain(|signal| !taken.contains(signal.recorded_as().as_str()));
            after = page.records.last().map(|record| record.seq);
            if !page.more {
                break;
            }
        }
        Ok(untaken)
    }

    /// Why the run is not running, or that it is. If the run continues as another, this is about the
    /// last of these runs.
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn why(&self) -> Result<Why, Error> {
        let run = self.status().await?;
        let workers = self.client.store.workers().await?;
        let store = self.client.store.as_ref();
        let used = match store.queues() {
            Some(queues) => queues.queue_use(run.queue.clone(), run.lane.clone()).await?,
            None => None,
        };
        let holder = super::step_key::holder(&self.client.keys, &run).await;
        let around = Around { workers: &workers, used: used.as_ref(), holder: holder.as_ref() };
        Ok(why(&run, around, store.clock().now()))
    }

    /// Waits until the run has ended and gives it as it stands then. A run that goes on as
    /// another is followed.
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn ended(&self) -> Result<Run, Error> {
        let ending = self.ending().await?;
        self.look(ending.run).await
    }

    async fn ending(&self) -> Result<Ending, Error> {
        match &self.client.watch {
            None => self.await_ending().await,
            Some(watch) => watch.wait(self.await_ending()).await,
        }
    }

    async fn await_ending(&self) -> Result<Ending, Error> {
        let mut id = self.id;
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        // What was told, or will be by the driver that has the run, needs no look. Anything else
        // may have happened to the run in the store before this wait.
        let knows = |waiter: &EndingWaiter| waiter.is_told() || self.client.executes(id);
        let mut fresh = started.as_ref().is_some_and(knows);
        let mut waiter = started.unwrap_or_else(|| self.client.endings.wait(id));
        let look_every = self.client.store.idle_look_every();
        let mut waits = false;
        loop {
            let changed = self.client.store.wait(Topic::Run(id));
            if !fresh {
                match self.look(id).await {
                    Ok(Run { continued_as: Some(next), .. }) => {
                        id = next;
                        waiter = self.client.endings.wait(id);
                        continue;
                    }
                    Ok(run) if run.state.is_final() => return Ok(Ending::of_run(run)),
                    Ok(_) => {}
                    // Whoever waits already waits through an outage.
                    Err(error) if waits && error.code() == Code::StoreUnavailable => {}
                    Err(error) => return Err(error),
                }
            }
            (fresh, waits) = (false, true);
            tokio::select! {
                biased;
                told = waiter.told() => match told {
                    Some(ending) => return Ok(ending),
                    None => waiter = self.client.endings.wait(id),
                },
                // While a driver of this process has the run, the driver tells how it goes.
                () = changed => fresh = self.client.executes(id),
                // A hint can be lost, as when the process that would give it is killed: whoever
                // waits looks again now and then, so that no end is missed.
                () = tokio::time::sleep(look_every) => fresh = self.client.executes(id),
            }
        }
    }

    pub(super) async fn look(&self, id: RunId) -> Result<Run, Error> {
        let run = self.client.store.get(Which::Id(id)).await?;
        run.ok_or_else(|| Error::new(Code::RunNotFound).of_run(id))
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits for the run's output: for ever, where no worker is up that serves it. What it waits for
    /// meanwhile is said by [`why`](RunHandle::why).
    ///
    /// # Errors
    /// `run_failed` with the failure, `run_cancelled`, `type_mismatch`, `run_not_found`, or that
    /// the store does not answer.
    pub async fn result(&self) -> Result<O, Error> {
        let ending = self.ending().await?;
        match (ending.state, ending.failure) {
            (RunState::Failed, Some(failure)) => Err(Error::run_failed(ending.run, failure)),
            (RunState::Cancelled, _) => Err(Error::new(Code::RunCancelled).of_run(ending.run)),
            _ => ending.output.unwrap_or_else(|| Json::stored("null")).read(),
        }
    }
}

impl<O> Clone for RunHandle<O> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.client), self.id)
    }
}

impl<O> fmt::Debug for RunHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunHandle").field(&self.id).finish()
    }
}
