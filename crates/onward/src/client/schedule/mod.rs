//! Schedules, as a client sees them.
//!
//! Owns: [`ScheduleHandle`]: looking at a schedule and steering it. `setup` stores one, `backfill`
//! starts runs for times that have passed. Never fires what is due but before its times change; the
//! workers do.

mod backfill;
mod setup;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use backfill::{Backfill, Backfilled};
pub use setup::{ScheduleSetup, ScheduleStart};

use super::{Inner, Onward};
use crate::limits::{PAGE_ROWS_DEFAULT, SCHEDULE_NEXT_MAX};
use crate::model::schedule::trigger_key;
use crate::schedule::Times;
use crate::store::{self, Fire, Fired, NewOccurrence, Occurred, Resume, SchedulePage, Schedules};
use crate::upkeep::cascade;
use crate::{Code, Error, RunId, Schedule, ScheduleSpec, Timestamp};

/// How often a change is made again when another one came between the look and it.
const TRIES_MAX: u32 = 8;

/// A schedule, by its name; made by [`Onward::schedule`]. It need not exist yet.
#[derive(Clone)]
pub struct ScheduleHandle {
    client: Arc<Inner>,
    name: String,
}

impl Onward {
    /// A handle on a schedule, by its name: to store it, look at it or steer it.
    ///
    /// ```
    /// # use onward::{CatchUp, Onward, Workflow};
    /// const REPORT: Workflow<String, ()> = Workflow::named("report");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let nightly = onward
    ///     .schedule("nightly-report")
    ///     .cron("0 3 * * *")
    ///     .time_zone("Europe/Berlin")
    ///     .catch_up(CatchUp::One)
    ///     .start(REPORT, &"sales".to_owned())
    ///     .await?;
    /// assert_eq!(nightly.generation, 1);
    ///
    /// let nightly = onward.schedule("nightly-report");
    /// assert_eq!(nightly.next(5).await?.len(), 5);
    /// nightly.pause().await?;
    /// # Ok(()) }
    /// ```
    pub fn schedule(&self, name: impl Into<String>) -> ScheduleHandle {
        ScheduleHandle { client: Arc::clone(&self.inner), name: name.into() }
    }

    /// A page of schedules by name, after this one.
    ///
    /// ```
    /// # use onward::Onward;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// for schedule in onward.schedules(None).await?.schedules {
    ///     println!("{}: {}, next at {:?}", schedule.name, schedule.spec, schedule.next_at);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `schedules_unsupported`, or that the store does not answer.
    pub async fn schedules(&self, after: Option<&str>) -> Result<SchedulePage, Error> {
        let after = after.map(str::to_owned);
        Ok(self.inner.schedules()?.list_schedules(after, PAGE_ROWS_DEFAULT).await?)
    }
}

impl Inner {
    fn schedules(&self) -> Result<&dyn Schedules, Error> {
        let unsupported =
            || Error::new(Code::SchedulesUnsupported).about(format!("{:?}", self.store));
        self.store.schedules().ok_or_else(unsupported)
    }
}

impl ScheduleHandle {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets it up to come at the times of a cron pattern: minute, hour, day of the month, month and
    /// weekday, with seconds before them if there are six fields. In UTC unless
    /// [`time_zone`](ScheduleSetup::time_zone) says otherwise.
    pub fn cron(self, pattern: impl Into<String>) -> ScheduleSetup {
        let (cron, time_zone) = (pattern.into(), "UTC".to_owned());
        ScheduleSetup::new(self, ScheduleSpec::Cron { cron, time_zone })
    }

    /// Sets it up to come at even distances, counted from the beginning of 1970 unless
    /// [`anchor`](ScheduleSetup::anchor) says otherwise: every hour is at the full hour.
    pub fn every(self, distance: Duration) -> ScheduleSetup {
        let every_ms = i64::try_from(distance.as_millis()).unwrap_or(i64::MAX);
        let anchor = Timestamp::from_millis(0);
        ScheduleSetup::new(self, ScheduleSpec::Every { every_ms, anchor })
    }

    /// The schedule as it stands.
    ///
    /// # Errors
    /// `schedule_not_found`, or that the store does not answer.
    pub async fn status(&self) -> Result<Schedule, Error> {
        let found = self.client.schedules()?.get_schedule(self.name.clone()).await?;
        found.ok_or_else(|| self.not_found())
    }

    /// The next times, if nothing is changed: up to
    /// [`SCHEDULE_NEXT_MAX`](crate::limits::SCHEDULE_NEXT_MAX). A paused schedule has them too.
    ///
    /// # Errors
    /// As [`status`](ScheduleHandle::status).
    pub async fn next(&self, count: usize) -> Result<Vec<Timestamp>, Error> {
        let times = Times::of(&self.status().await?.spec)?;
        let now = self.now();
        let all = std::iter::successors(times.after(now), |last| times.after(*last));
        Ok(all.take(count.min(SCHEDULE_NEXT_MAX)).collect())
    }

    /// Pauses it: its times pass without a run, until [`resume`](ScheduleHandle::resume).
    ///
    /// # Errors
    /// As [`status`](ScheduleHandle::status).
    pub async fn pause(&self) -> Result<Schedule, Error> {
        let paused = self.client.schedules()?.pause_schedule(self.name.clone()).await;
        paused.map_err(|error| self.error(error))
    }

    /// Lets it go on with its next time. Times that passed during the pause are not caught up: for
    /// them there is [`backfill`](ScheduleHandle::backfill).
    ///
    /// # Errors
    /// As [`status`](ScheduleHandle::status).
    pub async fn resume(&self) -> Result<Schedule, Error> {
        let schedules = self.client.schedules()?;
        let mut schedule = self.status().await?;
        for _ in 0..TRIES_MAX {
            let next_at = Times::of(&schedule.spec)?.after(self.now());
            let (name, generation) = (self.name.clone(), schedule.generation);
            let resumed = schedules.resume_schedule(Resume { name, generation, next_at }).await;
            schedule = resumed.map_err(|error| self.error(error))?;
            if schedule.paused_at.is_none() {
                return Ok(schedule);
            }
        }
        Err(self.contended())
    }

    /// Starts a run now, beside its times, and says what came of that: the overlap policy counts.
    /// A paused schedule can be triggered too.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # use std::time::Duration;
    /// # const REPORT: Workflow<String, ()> = Workflow::named("report");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let hourly = onward.schedule("hourly-report");
    /// let setup = hourly.clone().every(Duration::from_secs(3600));
    /// setup.start(REPORT, &"sales".to_owned()).await?;
    /// let first = hourly.trigger().await?;
    /// assert!(first.run().is_some());
    /// let second = hourly.trigger().await?;
    /// assert_eq!(second.run(), None, "the first has not ended, and the policy is to skip");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`status`](ScheduleHandle::status).
    pub async fn trigger(&self) -> Result<Occurred, Error> {
        // One run, however often the write is repeated.
        self.trigger_as(RunId::new(), self.now()).await
    }

    /// As [`trigger`](ScheduleHandle::trigger), for a caller that remembers the run's id and its time
    /// from before: repeated with both, it starts no second run.
    ///
    /// # Errors
    /// As [`status`](ScheduleHandle::status).
    pub async fn trigger_as(&self, run: RunId, at: Timestamp) -> Result<Occurred, Error> {
        let schedules = self.client.schedules()?;
        for _ in 0..TRIES_MAX {
            let generation = self.status().await?.generation;
            let nonce = format!("{:032x}", run.as_u128());
            let key = trigger_key(&self.name, at, &nonce).to_string();
            let fire = Fire {
                name: self.name.clone(),
                generation,
                advance: None,
                occurrences: vec![NewOccurrence { at, run, key, input: None }],
                caller: self.client.caller.clone(),
            };
            let fired = schedules.fire_schedule(fire).await.map_err(|error| self.error(error))?;
            if let Fired::Done(all) = fired
                && let Some(occurred) = all.first()
            {
                if occurred.replaces() {
                    cascade(self.client.store.as_ref()).await;
                }
                return Ok(*occurred);
            }
        }
        Err(self.contended())
    }

    /// Starts a run for each of its times from one moment on and before another, both in the past,
    /// in bounded batches. A time that has its run is passed over, so that it can be interrupted
    /// and done again. The overlap policy does not count: they are queued, all of them.
    ///
    /// ```
    /// # use onward::{Clock, Onward, Workflow};
    /// # use std::time::Duration;
    /// # const REPORT: Workflow<String, ()> = Workflow::named("report");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let hourly = onward.schedule("hourly-report");
    /// let setup = hourly.clone().every(Duration::from_secs(3600));
    /// setup.start(REPORT, &"sales".to_owned()).await?;
    /// let now = onward.store().clock().now();
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let yesterday = std::time::SystemTime::from(now) - day;
    /// let done = hourly.backfill(yesterday, now).await?;
    /// assert_eq!((done.started, done.existing), (24, 0));
    /// # Ok(()) }
    /// ```
    pub fn backfill(&self, from: impl Into<Timestamp>, before: impl Into<Timestamp>) -> Backfill {
        Backfill::new(self.clone(), from.into(), before.into())
    }

    /// Removes it, and says whether it was there. Its runs stay, and those under way go on.
    ///
    /// # Errors
    /// That the store does not answer.
    pub async fn remove(&self) -> Result<bool, Error> {
        Ok(self.client.schedules()?.remove_schedule(self.name.clone()).await?)
    }

    fn now(&self) -> Timestamp {
        self.client.store.clock().now()
    }

    fn not_found(&self) -> Error {
        Error::new(Code::ScheduleNotFound).about(format!("{:?}", self.name))
    }

    fn contended(&self) -> Error {
        let about = format!("the schedule {:?} is changed all the time", self.name);
        Error::new(Code::StoreUnavailable).about(about)
    }

    fn error(&self, error: store::Error) -> Error {
        match error {
            store::Error::NotFound => self.not_found(),
            error => error.into(),
        }
    }
}

impl fmt::Debug for ScheduleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleHandle").field("name", &self.name).finish()
    }
}
