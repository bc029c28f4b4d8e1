//! `onward schedules put`.
//!
//! Owns: how a schedule is written. Never decides whether it makes sense; the library does.

use std::time::{Duration, SystemTime};

use clap::Args;
use onward::limits::QUEUE_DEFAULT;
use onward::{CatchUp, Overlap, Schedule, ScheduleSetup, Workflow};
use serde_json::Value;
use serde_json::value::RawValue;

use super::show;
use crate::args::{self, Global};
use crate::open;
use crate::place::{NewSchedule, Place};
use crate::problem::{Exit, Problem};

/// Stores a schedule, or changes the one of that name
///
/// The same again changes nothing. A schedule that is paused stays paused.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward schedules put nightly-report report --cron '0 3 * * *' --time-zone Europe/Berlin
  onward schedules put sync-stock sync --every 15m --overlap buffer_one --catch-up all:96

A pattern has five fields (minute, hour, day, month, weekday), or six with seconds first. Workers
fire schedules if they were built with the library's feature 'schedules'.")]
pub(crate) struct PutArgs {
    /// The schedule's name
    name: String,
    /// The workflow that it starts
    workflow: String,
    /// A cron pattern, as '0 3 * * *'
    #[arg(long, value_name = "PATTERN", required_unless_present = "every")]
    #[arg(conflicts_with_all = ["every", "anchor"])]
    cron: Option<String>,
    /// The zone by whose clocks the pattern is read; UTC when left out
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    time_zone: Option<String>,
    /// An even distance, as 15m or 1d
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    every: Option<Duration>,
    /// The first of the even distances, as 2026-12-31T23:00:00Z; 1970 when left out
    #[arg(long, value_name = "TIME", value_parser = args::time, requires = "every")]
    anchor: Option<SystemTime>,
    /// The input of the runs, as JSON; null when left out
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    input: Option<String>,
    /// While the run before has not ended: skip, allow, cancel_previous or buffer_one
    #[arg(long, value_name = "POLICY", default_value_t, value_parser = overlap)]
    overlap: Overlap,
    /// For times that were missed: skip, one or all:N for the latest N of them
    #[arg(long, value_name = "POLICY", default_value_t, value_parser = catch_up)]
    catch_up: CatchUp,
    /// The queue of the runs
    #[arg(long, default_value = QUEUE_DEFAULT)]
    queue: String,
    /// The lane of their queue that the runs are in, where the queue has a limit for each
    #[arg(long)]
    lane: Option<String>,
    /// Higher is claimed first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// A run fails if it has not ended this long after its start
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    timeout: Option<Duration>,
    /// A label of the runs; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::tag)]
    tag: Vec<(String, String)>,
}

fn overlap(text: &str) -> Result<Overlap, String> {
    text.parse().map_err(|_| "write skip, allow, cancel_previous or buffer_one".to_owned())
}

fn catch_up(text: &str) -> Result<CatchUp, String> {
    text.parse().map_err(|_| "write skip, one, or all:N with a number".to_owned())
}

impl PutArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let input = self.input.as_deref().unwrap_or("null");
        // Checked before the store is opened: a typing error must not leave a database behind.
        let input: Box<RawValue> = serde_json::from_str(input)
            .map_err(|error| Problem::Usage(format!("--input is not JSON: {error}")))?;
        let tried = self.try_out(&input).await?;
        let place = Place::open_or_create(global).await?;
        let schedule = match &place {
            Place::Store(onward) => {
                let workflow = Workflow::<Box<RawValue>, Value>::of_name(self.workflow.as_str());
                self.setup(onward)?.start(workflow, &input).await?
            }
            Place::Server(_) => place.put_schedule(&NewSchedule::of(&tried, &input)).await?,
        };
        show::print(global.output, &[schedule], place.now())?;
        Ok(Exit::Ok)
    }

    /// Stores it where nobody sees it, for the same reason; and gives it with its defaults.
    async fn try_out(&self, input: &RawValue) -> Result<Schedule, Problem> {
        let nowhere = open::created("memory:").await?;
        let workflow = Workflow::<&RawValue, Value>::of_name(self.workflow.as_str());
        Ok(self.setup(&nowhere)?.start(workflow, &input).await?)
    }

    fn setup(&self, onward: &onward::Onward) -> Result<ScheduleSetup, Problem> {
        let schedule = onward.schedule(self.name.as_str());
        let mut setup = match (&self.cron, self.every) {
            (Some(cron), _) => schedule.cron(cron.as_str()),
            (None, Some(every)) => schedule.every(every),
            (None, None) => return Err(Problem::Usage("give --cron or --every".to_owned())),
        };
        setup = setup.overlap(self.overlap).catch_up(self.catch_up).priority(self.priority);
        setup = setup.queue(self.queue.as_str());
        if let Some(lane) = &self.lane {
            setup = setup.lane(lane.as_str());
        }
        if let Some(time_zone) = &self.time_zone {
            setup = setup.time_zone(time_zone.as_str());
        }
        if let Some(anchor) = self.anchor {
            setup = setup.anchor(anchor);
        }
        if let Some(timeout) = self.timeout {
            setup = setup.timeout(timeout);
        }
        for (name, value) in &self.tag {
            setup = setup.tag(name, value);
        }
        Ok(setup)
    }
}
