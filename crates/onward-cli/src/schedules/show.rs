//! `onward schedules list`, `show` and `next`: schedules as a table, as JSON lines, or as names.
//!
//! Owns: the rows about schedules. Never changes one.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use onward::limits::{SCHEDULE_GRACE, SCHEDULE_NEXT_MAX};
use onward::{Schedule, ScheduleSpec, Timestamp};
use serde::Serialize;

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem, print_note};
use crate::table::Table;
use crate::text;

/// Times that are shown with a schedule.
const TIMES_SHOWN: usize = 5;

/// Characters of a name or a pattern in a list.
const NAME_CHARS: usize = 40;

/// Shows the next times of a schedule
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  onward schedules next nightly-report --count 10")]
pub(crate) struct NextArgs {
    /// The schedule's name
    name: String,
    /// How many, up to 100
    #[arg(long, default_value_t = TIMES_SHOWN, value_parser = count)]
    count: usize,
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=SCHEDULE_NEXT_MAX).contains(count));
    count.ok_or_else(|| format!("it is a number from 1 to {SCHEDULE_NEXT_MAX}"))
}

/// A time as it is printed with `-o json`.
#[derive(Serialize)]
struct At {
    at: Timestamp,
}

/// A schedule as it is printed with `-o json`.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    schedule: &'a Schedule,
    next: &'a [Timestamp],
}

impl NextArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let (status, times) = place.schedule(&self.name, self.count).await?;
        let now = place.now();
        for at in times {
            match global.output {
                Format::Table => writeln!(output::stdout(), "{}", local(&status, at, now))?,
                Format::Json => output::print_json(&At { at })?,
                Format::Ids => writeln!(output::stdout(), "{at}")?,
            }
        }
        if status.paused_at.is_some() {
            print_note(&"it is paused: nothing is started until it is resumed");
        }
        Ok(Exit::Ok)
    }
}

/// Lists every schedule.
pub(super) async fn list(global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let (all, now) = (place.schedules().await?, place.now());
    print(global.output, &all, now)?;
    Ok(Exit::Ok)
}

/// Shows one schedule.
pub(super) async fn show(name: &str, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let (schedule, next) = place.schedule(name, TIMES_SHOWN).await?;
    let now = place.now();
    match global.output {
        Format::Table => write_whole(&mut output::stdout(), &schedule, &next, now)?,
        Format::Json => output::print_json(&Shown { schedule: &schedule, next: &next })?,
        Format::Ids => print(Format::Ids, std::slice::from_ref(&schedule), now)?,
    }
    note_overdue(&schedule, now);
    Ok(Exit::Ok)
}

/// Prints schedules, one per line.
pub(super) fn print(format: Format, all: &[Schedule], now: Timestamp) -> Result<(), Problem> {
    let table = |all: &[Schedule]| {
        let mut table = Table::new(["NAME", "TIMES", "WORKFLOW", "NEXT"]);
        for schedule in all {
            table.row([
                text::cut(&schedule.name, NAME_CHARS).into(),
                text::cut(&schedule.spec.to_string(), NAME_CHARS).into(),
                text::cut(&schedule.workflow, NAME_CHARS).into(),
                next(schedule, now).into(),
            ]);
        }
        table
    };
    output::print_rows(format, all, table, |schedule| schedule.name.clone())
}

fn next(schedule: &Schedule, now: Timestamp) -> String {
    match (schedule.paused_at, schedule.next_at) {
        (Some(_), _) => "paused".to_owned(),
        (None, Some(next_at)) => text::moment(next_at, now),
        (None, None) => "never again".to_owned(),
    }
}

fn write_whole(
    out: &mut dyn Write,
    schedule: &Schedule,
    times: &[Timestamp],
    now: Timestamp,
) -> Result<(), Problem> {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.into(), value.into()]);
    row("schedule", text::line(&schedule.name));
    row("times", text::line(&schedule.spec.to_string()));
    row("workflow", text::line(&schedule.workflow));
    row("input", text::payload(&schedule.input));
    row("queue", text::line(&schedule.queue));
    if let Some(ms) = schedule.timeout_ms {
        let timeout = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        row("timeout", text::duration(timeout));
    }
    for (name, value) in &schedule.tags {
        row("tag", text::line(&format!("{name}={value}")));
    }
    row("overlap", schedule.overlap.to_string());
    row("catch-up", schedule.catch_up.to_string());
    row("generation", schedule.generation.to_string());
    row("changed", text::moment(schedule.changed_at, now));
    if let Some(paused_at) = schedule.paused_at {
        row("paused", text::moment(paused_at, now));
    }
    if let Some(latest) = &schedule.latest {
        row("latest run", format!("key {}", text::line(&latest.key)));
    }
    for (place, at) in times.iter().enumerate() {
        row(if place == 0 { "next" } else { "" }, local(schedule, *at, now));
    }
    Ok(table.write(out)?)
}

/// A moment, also by the clocks that the pattern is read by.
fn local(schedule: &Schedule, at: Timestamp, now: Timestamp) -> String {
    let moment = text::moment(at, now);
    match (&schedule.spec, schedule.spec.local_time(at)) {
        (ScheduleSpec::Cron { time_zone, .. }, Some(local)) if time_zone != "UTC" => {
            format!("{local}  {moment}")
        }
        _ => moment,
    }
}

/// Says of a schedule that should have been fired why it may not have been.
fn note_overdue(schedule: &Schedule, now: Timestamp) {
    if let (None, Some(next_at)) = (schedule.paused_at, schedule.next_at)
        && now.since(next_at) > SCHEDULE_GRACE
    {
        print_note(&format!(
            "its time {next_at} has passed and nobody fired it: no worker is up that was built \
             with the feature 'schedules'"
        ));
    }
}
