//! Queues with limits, as a client sets them up and looks at them.
//!
//! Owns: [`QueueHandle`], [`QueueSetup`], and the checks of limits. Never counts runs; the store does,
//! in the transaction of each claim.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Inner, Onward};
use crate::clock::millis;
use crate::error::check_name;
use crate::limits::{PAGE_ROWS_DEFAULT, QUEUE_LIMIT_MAX, RATE_COUNT_MAX, RATE_PERIOD_MAX};
use crate::store::{PutQueue, QueuePage, Queues};
use crate::{Code, Error, Queue, QueueLimits, Rate};

impl Onward {
    /// A queue, by its name: to give it limits, to pause it, or to look at it. It need not be set
    /// up; one that is not has no limits.
    ///
    /// ```
    /// # use onward::Onward;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// onward
    ///     .queue("ocr")
    ///     .concurrency(8)
    ///     .per_worker(2)
    ///     .rate(10, Duration::from_secs(1))
    ///     .per_lane(1)
    ///     .save()
    ///     .await?;
    /// onward.queue("ocr").pause().await?;
    /// assert!(onward.queue("ocr").status().await?.paused_at.is_some());
    /// onward.queue("ocr").resume().await?;
    /// # Ok(()) }
    /// ```
    pub fn queue(&self, name: impl Into<String>) -> QueueHandle {
        QueueHandle { client: Arc::clone(&self.inner), name: name.into() }
    }

    /// A page of queues by name, after this one: those that are set up, and those that have runs
    /// that are queued or running.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # const OCR: Workflow<u64, ()> = Workflow::named("ocr");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// onward.start(OCR, &7).queue("ocr").await?;
    /// for counts in onward.queues(None).await?.queues {
    ///     println!("{}: {} queued, {} running", counts.queue.name, counts.queued, counts.running);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `queues_unsupported`, or that the store does not answer.
    pub async fn queues(&self, after: Option<&str>) -> Result<QueuePage, Error> {
        let after = after.map(str::to_owned);
        Ok(self.inner.queues()?.list_queues(after, PAGE_ROWS_DEFAULT).await?)
    }
}

impl Inner {
    fn queues(&self) -> Result<&dyn Queues, Error> {
        let unsupported = || Error::new(Code::QueuesUnsupported).about(format!("{:?}", self.store));
        self.store.queues().ok_or_else(unsupported)
    }
}

/// A queue; made by [`Onward::queue`].
#[derive(Clone)]
pub struct QueueHandle {
    client: Arc<Inner>,
    name: String,
}

impl QueueHandle {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets it up with a limit of runs that are running at once, over all workers.
    pub fn concurrency(self, runs: u32) -> QueueSetup {
        self.limits(QueueLimits { concurrency: Some(runs), ..QueueLimits::default() })
    }

    /// Sets it up with a limit of runs that one worker has at once.
    pub fn per_worker(self, runs: u32) -> QueueSetup {
        self.limits(QueueLimits { per_worker: Some(runs), ..QueueLimits::default() })
    }

    /// Sets it up with a limit of runs that begin or go on in any period of this length, over all
    /// workers.
    pub fn rate(self, runs: u32, period: Duration) -> QueueSetup {
        self.limits(QueueLimits::default()).rate(runs, period)
    }

    /// Sets it up with a limit of runs of one lane that are running at once, over all workers; and
    /// lets lanes take turns.
    pub fn per_lane(self, runs: u32) -> QueueSetup {
        self.limits(QueueLimits { per_lane: Some(runs), ..QueueLimits::default() })
    }

    /// Sets it up with these limits.
    pub fn limits(self, limits: QueueLimits) -> QueueSetup {
        QueueSetup { handle: self, limits }
    }

    /// The queue as it is set up.
    ///
    /// # Errors
    /// `queues_unsupported`, or that the store does not answer.
    pub async fn status(&self) -> Result<Queue, Error> {
        let found = self.client.queues()?.get_queue(self.name.clone()).await?;
        Ok(found.unwrap_or_else(|| Queue::named(&self.name)))
    }

    /// Pauses it: no worker takes a run of it, until [`resume`](QueueHandle::resume). What is
    /// running goes on to its end or its next wait.
    ///
    /// # Errors
    /// `queues_full`, `invalid_name`, `queues_unsupported`, or that the store does not answer.
    pub async fn pause(&self) -> Result<Queue, Error> {
        check_name("queue", &self.name)?;
        Ok(self.client.queues()?.pause_queue(self.name.clone()).await?)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// `queues_unsupported`, or that the store does not answer.
    pub async fn resume(&self) -> Result<Queue, Error> {
        Ok(self.client.queues()?.resume_queue(self.name.clone()).await?)
    }

    /// Takes all limits from it, and its pause; says whether it had any.
    ///
    /// # Errors
    /// `queues_unsupported`, or that the store does not answer.
    pub async fn clear(&self) -> Result<bool, Error> {
        Ok(self.client.queues()?.clear_queue(self.name.clone()).await?)
    }
}

/// A queue that is being set up; made by the limits of a [`QueueHandle`]. It says all the limits that
/// the queue is to have: those that it does not name are taken away.
#[must_use = "limits hold when they are saved"]
pub struct QueueSetup {
    handle: QueueHandle,
    limits: QueueLimits,
}

impl QueueSetup {
    /// As [`QueueHandle::concurrency`].
    pub fn concurrency(mut self, runs: u32) -> Self {
        self.limits.concurrency = Some(runs);
        self
    }

    /// As [`QueueHandle::per_worker`].
    pub fn per_worker(mut self, runs: u32) -> Self {
        self.limits.per_worker = Some(runs);
        self
    }

    /// As [`QueueHandle::rate`].
    pub fn rate(mut self, runs: u32, period: Duration) -> Self {
        self.limits.rate = Some(Rate { count: runs, period_ms: millis(period) });
        self
    }

    /// As [`QueueHandle::per_lane`].
    pub fn per_lane(mut self, runs: u32) -> Self {
        self.limits.per_lane = Some(runs);
        self
    }

    /// Gives the queue these limits. They hold from the next claim of every process on; what is
    /// running stays so. The same again changes nothing.
    ///
    /// # Errors
    /// `invalid_option` for a limit of 0 or past [`QUEUE_LIMIT_MAX`], [`RATE_COUNT_MAX`] and
    /// [`RATE_PERIOD_MAX`]; `invalid_name`, `queues_full`, `queues_unsupported`, or that the store
    /// does not answer.
    pub async fn save(self) -> Result<Queue, Error> {
        let QueueHandle { client, name } = self.handle;
        check_name("queue", &name)?;
        check_limits(&self.limits)?;
        Ok(client.queues()?.put_queue(PutQueue { name, limits: self.limits }).await?)
    }
}

fn check_limits(limits: &QueueLimits) -> Result<(), Error> {
    let check = |what: &str, number: u32, most: u32| match number {
        0 => Err(format!("{what} of 0; to let nothing begin, pause the queue")),
        _ if number > most => Err(format!("{what} of {number}; the most is {most}")),
        _ => Ok(()),
    };
    let checked = [
        ("a concurrency", limits.concurrency, QUEUE_LIMIT_MAX),
        ("a limit per worker", limits.per_worker, QUEUE_LIMIT_MAX),
        ("a limit per lane", limits.per_lane, QUEUE_LIMIT_MAX),
        ("a rate", limits.rate.map(|rate| rate.count), RATE_COUNT_MAX),
    ];
    let mut checked = checked
        .into_iter()
        .filter_map(|(what, number, most)| number.map(|number| check(what, number, most)));
    let periods = 1..=millis(RATE_PERIOD_MAX);
    let period = limits.rate.map(|rate| rate.period_ms).filter(|ms| !periods.contains(ms));
    let period = period.map_or(Ok(()), |ms| {
        Err(format!("a rate's period of {ms} ms; it is from 1 ms to {RATE_PERIOD_MAX:?}"))
    });
    checked
        .try_for_each(|check| check)
        .and(period)
        .map_err(|about| Error::new(Code::InvalidOption).about(about))
}

impl fmt::Debug for QueueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueHandle").field("name", &self.name).finish()
    }
}

impl fmt::Debug for QueueSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.handle.name;
        f.debug_struct("QueueSetup").field("name", name).field("limits", &self.limits).finish()
    }
}
