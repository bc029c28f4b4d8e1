//! `onward schedules`: what starts runs by the clock.
//!
//! Owns: the commands, and how a schedule is printed. `put` stores one, `backfill` starts runs for
//! times that have passed.

mod backfill;
mod put;
mod show;

use std::io::Write;

use clap::{Args, Subcommand};
use onward::{Code, Occurred};

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};

/// Looks at schedules and steers them
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SchedulesCommand {
    /// Lists schedules by name
    List,
    /// Shows a schedule, its policies and its next times
    #[command(after_help = "Example:\n  onward schedules show nightly-report")]
    Show(Name),
    Put(put::PutArgs),
    /// Pauses schedules: their times pass without a run
    Pause(Names),
    /// Lets paused schedules go on with their next time; what passed meanwhile is not caught up
    Resume(Names),
    /// Starts a run now, as the overlap policy allows, and leaves the times as they are
    #[command(after_help = "Example:\n  onward schedules trigger nightly-report\n\n\
                            Exit codes: 0 a run was started, 1 the run before has not ended.")]
    Trigger(Name),
    Backfill(backfill::BackfillArgs),
    Next(show::NextArgs),
    /// Removes schedules; their runs stay
    Remove(Names),
}

/// The schedule that a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Name {
    /// The schedule's name
    name: String,
}

/// The schedules that a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Names {
    /// The schedules' names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

impl SchedulesCommand {
    /// Whether doing it again changes nothing.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(
            self,
            SchedulesCommand::List | SchedulesCommand::Show(_) | SchedulesCommand::Next(_)
        )
    }

    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        match self {
            SchedulesCommand::List => show::list(global).await,
            SchedulesCommand::Show(Name { name }) => show::show(&name, global).await,
            SchedulesCommand::Put(put) => put.execute(global).await,
            SchedulesCommand::Pause(names) => pause(names, global).await,
            SchedulesCommand::Resume(names) => resume(names, global).await,
            SchedulesCommand::Trigger(Name { name }) => trigger(&name, global).await,
            SchedulesCommand::Backfill(backfill) => backfill.execute(global).await,
            SchedulesCommand::Next(next) => next.execute(global).await,
            SchedulesCommand::Remove(names) => remove(names, global).await,
        }
    }
}

async fn pause(names: Names, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    for name in names.names {
        let schedule = place.pause_schedule(&name).await?;
        show::print(global.output, &[schedule], place.now())?;
    }
    Ok(Exit::Ok)
}

async fn resume(names: Names, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    for name in names.names {
        let schedule = place.resume_schedule(&name).await?;
        show::print(global.output, &[schedule], place.now())?;
    }
    Ok(Exit::Ok)
}

async fn remove(names: Names, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    for name in names.names {
        let status = place.remove_schedule(&name).await?;
        match global.output {
            Format::Table => writeln!(output::stdout(), "removed {name}")?,
            Format::Json => output::print_json(&status)?,
            Format::Ids => writeln!(output::stdout(), "{name}")?,
        }
    }
    Ok(Exit::Ok)
}

async fn trigger(name: &str, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let occurred = place.trigger(name).await?;
    print_occurred(&place, &occurred, global.output).await?;
    Ok(if occurred.run().is_some() { Exit::Ok } else { Exit::No })
}

/// Prints what came of a trigger: the run, or why there is none.
async fn print_occurred(place: &Place, occurred: &Occurred, format: Format) -> Result<(), Problem> {
    if format == Format::Json {
        return output::print_json(occurred);
    }
    match (occurred, occurred.run()) {
        (_, Some(run)) => {
            let run = place.run(run).await?;
            output::print_runs(format, &[run], place.now())
        }
        (Occurred::Skipped { live }, None) => {
            crate::problem::print_error(&format!("skipped: run {live} has not ended"));
            Ok(())
        }
        (_, None) => {
            crate::problem::print_error(&Code::KeyConflict.advice());
            Ok(())
        }
    }
}
