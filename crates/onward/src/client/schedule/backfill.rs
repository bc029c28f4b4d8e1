//! Runs for times of a schedule that have passed.
//!
//! Owns: [`Backfill`], in batches and with progress. Never starts a second run for a time: the key
//! of a run is the same whoever starts it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use serde::Serialize;

use super::ScheduleHandle;
use crate::limits::{COMMIT_BYTES_MAX, START_BATCH_MAX};
use crate::schedule::{Times, occurrence};
use crate::store::schedules::run_of;
use crate::store::{NewRun, StartedHow};
use crate::{Code, Error, Schedule, Timestamp};

/// A backfill that is being set up; made by [`ScheduleHandle::backfill`], done by `await`.
#[must_use = "runs are started when it is awaited"]
pub struct Backfill {
    handle: ScheduleHandle,
    from: Timestamp,
    before: Timestamp,
    on_progress: Option<Box<dyn FnMut(Backfilled) + Send>>,
}

/// What a [`Backfill`] did, or has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Backfilled {
    /// Runs that it started.
    pub started: u64,
    /// Times that had their run.
    pub existing: u64,
    /// Times that already had a run, with the input from before the schedule's input was changed.
    pub refused: u64,
}

impl Backfill {
    pub(super) fn new(handle: ScheduleHandle, from: Timestamp, before: Timestamp) -> Self {
        Self { handle, from, before, on_progress: None }
    }

    /// Calls back after each batch.
    pub fn on_progress(mut self, on_progress: impl FnMut(Backfilled) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(on_progress));
        self
    }

    async fn fill(mut self) -> Result<Backfilled, Error> {
        let schedule = self.handle.status().await?;
        let now = self.handle.now();
        if self.before > now {
            let about = format!("{} is in the future: its times come by themselves", self.before);
            return Err(Error::new(Code::InvalidOption).about(about));
        }
        if let Some(how) = crate::codec::describe(&schedule.input) {
            let about = format!("the input of schedule {:?} is {how}", schedule.name);
            return Err(Error::new(Code::PayloadUnreadable).about(about));
        }
        let times = Times::of(&schedule.spec)?;
        let last = Timestamp::from_millis(self.before.as_millis().saturating_sub(1));
        let most = COMMIT_BYTES_MAX / schedule.input.as_str().len().max(1);
        let most = most.clamp(1, START_BATCH_MAX);
        let mut done = Backfilled::default();
        let mut moments = times.between(self.from, last).peekable();
        while moments.peek().is_some() {
            let batch = moments.by_ref().take(most).map(|at| self.run(&schedule, at)).collect();
            start(&self.handle, batch, &mut done).await?;
            if let Some(on_progress) = &mut self.on_progress {
                on_progress(done);
            }
        }
        Ok(done)
    }

    fn run(&self, schedule: &Schedule, at: Timestamp) -> NewRun {
        run_of(schedule, &occurrence(schedule, at), &self.handle.client.caller)
    }
}

async fn start(
    handle: &ScheduleHandle,
    batch: Vec<NewRun>,
    done: &mut Backfilled,
) -> Result<(), Error> {
    for answer in handle.client.store.start(batch).await? {
        match answer.map_err(Error::from) {
            Ok(started) if started.how == StartedHow::New => done.started += 1,
            Ok(_) => done.existing += 1,
            Err(error) if error.code() == Code::KeyConflict => done.refused += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl IntoFuture for Backfill {
    type Output = Result<Backfilled, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.fill())
    }
}

impl fmt::Debug for Backfill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, before) = (&self.from, &self.before);
        f.debug_struct("Backfill").field("from", from).field("before", before).finish()
    }
}
