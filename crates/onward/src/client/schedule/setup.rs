//! Storing a schedule.
//!
//! Owns: [`ScheduleSetup`] and its checks. Never fires, but what is due before its times change.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;

use super::ScheduleHandle;
use crate::client::start::StartOptions;
use crate::clock::millis;
use crate::error::check_name;
use crate::limits::{QUEUE_DEFAULT, SCHEDULE_CATCH_UP_MAX, TAGS_MAX};
use crate::model::schedule::{SCHEDULE_TAG, SCHEDULED_AT_TAG};
use crate::schedule::{Times, fire_due};
use crate::store::PutSchedule;
use crate::store::schedules::over_by;
use crate::{CatchUp, Code, Error, Json, Overlap, Schedule, ScheduleSpec, Timestamp, Workflow};

/// A schedule that is being set up; made by [`ScheduleHandle::cron`] and [`ScheduleHandle::every`].
///
/// ```
/// # use onward::{CatchUp, Onward, Overlap, Workflow};
/// # use std::time::Duration;
/// const SYNC: Workflow<String, ()> = Workflow::named("sync");
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// let setup = onward
///     .schedule("sync-stock")
///     .every(Duration::from_secs(15 * 60))
///     .overlap(Overlap::BufferOne)
///     .catch_up(CatchUp::All { max: 96 })
///     .queue("bulk")
///     .tag("tenant", "analytical-engines")
///     .timeout(Duration::from_secs(3600));
/// let stored = setup.start(SYNC, &"stock".to_owned()).await?;
/// assert_eq!(stored.spec.to_string(), "every 15m");
/// # Ok(()) }
/// ```
#[must_use = "a schedule is stored when it was told what to start, and that is awaited"]
pub struct ScheduleSetup {
    handle: ScheduleHandle,
    spec: ScheduleSpec,
    /// An option that does not go with the spec.
    misplaced: Option<&'static str>,
    overlap: Overlap,
    catch_up: CatchUp,
    queue: String,
    lane: Option<String>,
    priority: i32,
    timeout: Option<Duration>,
    tags: BTreeMap<String, String>,
}

impl ScheduleSetup {
    pub(super) fn new(handle: ScheduleHandle, spec: ScheduleSpec) -> Self {
        Self {
            handle,
            spec,
            misplaced: None,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            queue: QUEUE_DEFAULT.to_owned(),
            lane: None,
            priority: 0,
            timeout: None,
            tags: BTreeMap::new(),
        }
    }

    /// The zone by whose clocks the cron pattern is read, as `Europe/Berlin`; UTC unless set.
    pub fn time_zone(mut self, name: impl Into<String>) -> Self {
        match &mut self.spec {
            ScheduleSpec::Cron { time_zone, .. } => *time_zone = name.into(),
            ScheduleSpec::Every { .. } => self.misplaced = Some("a time zone goes with cron"),
        }
        self
    }

    /// The first of the even distances; the beginning of 1970 unless set.
    pub fn anchor(mut self, time: impl Into<Timestamp>) -> Self {
        match &mut self.spec {
            ScheduleSpec::Every { anchor, .. } => *anchor = time.into(),
            ScheduleSpec::Cron { .. } => self.misplaced = Some("an anchor goes with every"),
        }
        self
    }

    /// What happens at a time when the latest run has not ended; that time is skipped unless set.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// What happens about times that were missed; one run for all of them unless set.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// The queue that the runs are routed by; `default` unless set.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// The lane of their queue that the runs are in; none unless set.
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }

    /// The priority of the runs: higher is claimed first; 0 unless set.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// A run fails with `deadline_exceeded` if it has not ended this long after its start.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a label to the runs. They also have the labels `schedule` and `scheduled_at`.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// What it starts at each of its times. Await it: then the schedule is on disk.
    ///
    /// To store the same again changes nothing, so a program can do so whenever it begins.
    pub fn start<I: Serialize, O>(self, workflow: Workflow<I, O>, input: &I) -> ScheduleStart {
        ScheduleStart { setup: self, workflow: workflow.name().to_owned(), input: Json::of(input) }
    }

    fn check(&self, workflow: &str) -> Result<(), Error> {
        check_name("schedule", &self.handle.name)?;
        let options = StartOptions {
            queue: self.queue.clone(),
            lane: self.lane.clone(),
            tags: self.tags.clone(),
            ..StartOptions::default()
        };
        options.check(workflow)?;
        let option = |about: String| Err(Error::new(Code::InvalidOption).about(about));
        if let Some(misplaced) = self.misplaced {
            return option(misplaced.to_owned());
        }
        let own = [SCHEDULE_TAG, SCHEDULED_AT_TAG];
        if let Some(taken) = own.into_iter().find(|name| self.tags.contains_key(*name)) {
            return option(format!("the tag {taken:?} is set by the schedule itself"));
        }
        let tags_max = TAGS_MAX - own.len();
        if self.tags.len() > tags_max {
            return option(format!("{} tags, a schedule has at most {tags_max}", self.tags.len()));
        }
        match self.catch_up {
            CatchUp::All { max } if !(1..=SCHEDULE_CATCH_UP_MAX).contains(&max) => option(format!(
                "to catch up with {max} times is not between 1 and {SCHEDULE_CATCH_UP_MAX}"
            )),
            _ => Ok(()),
        }
    }
}

/// A schedule to store; made by [`ScheduleSetup::start`], stored by `await`.
#[must_use = "a schedule is stored when it is awaited"]
pub struct ScheduleStart {
    setup: ScheduleSetup,
    workflow: String,
    input: Result<Json, Error>,
}

impl ScheduleStart {
    async fn put(self) -> Result<Schedule, Error> {
        let Self { setup, workflow, input } = self;
        let input = input?;
        setup.check(&workflow)?;
        let times = Times::of(&setup.spec)?;
        let (handle, client) = (&setup.handle, &setup.handle.client);
        let schedules = client.schedules()?;
        let now = handle.now();
        if times.after(now).is_none() {
            let about = format!("{} does not come again", setup.spec);
            return Err(Error::new(Code::InvalidSchedule).about(about));
        }
        let old = schedules.get_schedule(handle.name.clone()).await?;
        // This process's clock may be behind what was fired.
        let over = old.as_ref().map_or(now, |old| over_by(old, now));
        let next_at = times.after(now.max(over));
        // What is due by the old times is not lost when they change.
        if let Some(old) = old.filter(|old| old.spec != setup.spec) {
            let fired =
                fire_due(client.store.as_ref(), schedules, old, (now, &client.caller)).await;
            if let Err(error) = fired {
                tracing::warn!(schedule = %handle.name, %error, "its last times were not fired");
            }
        }
        let put = PutSchedule {
            name: handle.name.clone(),
            spec: setup.spec.clone(),
            workflow,
            input,
            queue: setup.queue.clone(),
            lane: setup.lane.clone(),
            priority: setup.priority,
            timeout_ms: setup.timeout.map(millis),
            tags: setup.tags.clone(),
            overlap: setup.overlap,
            catch_up: setup.catch_up,
            next_at,
        };
        Ok(schedules.put_schedule(put).await?)
    }
}

impl IntoFuture for ScheduleStart {
    type Output = Result<Schedule, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.put())
    }
}

impl fmt::Debug for ScheduleSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, spec) = (&self.handle.name, &self.spec);
        f.debug_struct("ScheduleSetup").field("name", name).field("spec", spec).finish()
    }
}

impl fmt::Debug for ScheduleStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (setup, workflow) = (&self.setup, &self.workflow);
        f.debug_struct("ScheduleStart").field("setup", setup).field("workflow", workflow).finish()
    }
}
