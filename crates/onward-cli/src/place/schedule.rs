//! Schedules of a place.
//!
//! Owns: each look and each change in both ways. Never computes a time; the library does.

use std::collections::BTreeMap;

use onward::{CatchUp, Occurred, Overlap, Schedule, ScheduleSpec, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Call, Page, Place, segment};
use crate::problem::Problem;

/// A schedule, as a server is asked to store it.
#[derive(Debug, Serialize)]
pub(crate) struct NewSchedule<'a> {
    #[serde(skip)]
    name: &'a str,
    workflow: &'a str,
    spec: &'a ScheduleSpec,
    input: &'a RawValue,
    queue: &'a str,
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    tags: &'a BTreeMap<String, String>,
    overlap: Overlap,
    catch_up: CatchUp,
}

impl<'a> NewSchedule<'a> {
    /// This schedule, with its input as it was typed.
    pub(crate) fn of(schedule: &'a Schedule, input: &'a RawValue) -> Self {
        Self {
            name: &schedule.name,
            workflow: &schedule.workflow,
            spec: &schedule.spec,
            input,
            queue: &schedule.queue,
            priority: schedule.priority,
            lane: schedule.lane.as_deref(),
            timeout_ms: schedule.timeout_ms,
            tags: &schedule.tags,
            overlap: schedule.overlap,
            catch_up: schedule.catch_up,
        }
    }
}

/// What a backfill of a server did in one call.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Filled {
    pub(crate) started: u64,
    pub(crate) existing: u64,
    pub(crate) refused: u64,
    /// Whether its time was over before the last of them. Asked again, it goes on.
    #[serde(skip_serializing)]
    pub(crate) more: bool,
}

#[derive(Serialize)]
struct Range {
    from: Timestamp,
    before: Timestamp,
}

#[derive(Deserialize)]
struct Next {
    next: Vec<Timestamp>,
}

impl Place {
    /// Every schedule, by name.
    pub(crate) async fn schedules(&self) -> Result<Vec<Schedule>, Problem> {
        let (mut all, mut after) = (Vec::<Schedule>::new(), None::<String>);
        loop {
            let (schedules, more) = match self {
                Place::Store(onward) => {
                    let page = onward.schedules(after.as_deref()).await?;
                    (page.schedules, page.more)
                }
                Place::Server(_) => {
                    let call = Call::get("/schedules").query_if("cursor", after.as_deref());
                    let page: Page<Schedule> = self.ask(&call).await?;
                    (page.items, page.next.is_some())
                }
            };
            all.extend(schedules);
            after = all.last().map(|last| last.name.clone());
            if !more {
                return Ok(all);
            }
        }
    }

    /// A schedule, and its next times.
    pub(crate) async fn schedule(
        &self,
        name: &str,
        times: usize,
    ) -> Result<(Schedule, Vec<Timestamp>), Problem> {
        match self {
            Place::Store(onward) => {
                let handle = onward.schedule(name);
                Ok((handle.status().await?, handle.next(times).await?))
            }
            Place::Server(_) => {
                // Read twice: payloads cannot be read through a flattened field.
                let call = Call::get(path(name)).query("times", times);
                let shown: Box<RawValue> = self.ask(&call).await?;
                let schedule = serde_json::from_str(shown.get())?;
                let Next { next } = serde_json::from_str(shown.get())?;
                Ok((schedule, next))
            }
        }
    }

    /// Has a server store a schedule.
    pub(crate) async fn put_schedule(&self, new: &NewSchedule<'_>) -> Result<Schedule, Problem> {
        self.ask(&Call::put(path(new.name)).body(new)?).await
    }

    /// Has a server start runs for the times that have passed, as far as it comes in one call.
    pub(crate) async fn backfill(
        &self,
        name: &str,
        from: Timestamp,
        before: Timestamp,
    ) -> Result<Filled, Problem> {
        let call = Call::post(format!("{}/backfill", path(name)));
        self.ask(&call.body(&Range { from, before })?).await
    }

    /// Pauses a schedule.
    pub(crate) async fn pause_schedule(&self, name: &str) -> Result<Schedule, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.schedule(name).pause().await?),
            Place::Server(_) => self.ask(&Call::post(format!("{}/pause", path(name)))).await,
        }
    }

    /// Lets a paused schedule go on.
    pub(crate) async fn resume_schedule(&self, name: &str) -> Result<Schedule, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.schedule(name).resume().await?),
            Place::Server(_) => self.ask(&Call::post(format!("{}/resume", path(name)))).await,
        }
    }

    /// Removes a schedule, and gives what it was.
    pub(crate) async fn remove_schedule(&self, name: &str) -> Result<Schedule, Problem> {
        let (schedule, _) = self.schedule(name, 1).await?;
        match self {
            Place::Store(onward) => drop(onward.schedule(name).remove().await?),
            Place::Server(_) => {
                self.ask::<Box<RawValue>>(&Call::delete(path(name))).await?;
            }
        }
        Ok(schedule)
    }

    /// Starts a run of a schedule now.
    pub(crate) async fn trigger(&self, name: &str) -> Result<Occurred, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.schedule(name).trigger().await?),
            Place::Server(_) => self.ask(&Call::post(format!("{}/trigger", path(name)))).await,
        }
    }
}

/// The path of a schedule.
fn path(name: &str) -> String {
    format!("/schedules/{}", segment(name))
}
