//! `onward schedules`: what starts runs by the clock.
//!
//! Owns: the commands, and how a schedule is printed. `put` stores one, `backfill` starts runs for
//! times that have passed.

mod backfill;
mod put;
mod show;

use std::io::Write;

use clap::{Args, Subcommand};
use onward::{Code, Occurred, Onward};

use crate::args::Global;
use crate::open;
use crate::output::{self, Format};
use crate::problem::{Exit, Problem};

/// Looks at schedules and steers them
#[derive(Debug, Subcommand)]
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
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The schedule's name
    name: String,
}

/// The schedules that a command is about.
#[derive(Debug, Args)]
pub(crate) struct Names {
    /// The schedules' names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

impl SchedulesCommand {
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
    let onward = open::existing(&global.store).await?;
    for name in names.names {
        let schedule = onward.schedule(name).pause().await?;
        show::print(global.output, &[schedule], output::now(&onward))?;
    }
    Ok(Exit::Ok)
}

async fn resume(names: Names, global: &Global) -> Result<Exit, Problem> {
    let onward = open::existing(&global.store).await?;
    for name in names.names {
        let schedule = onward.schedule(name).resume().await?;
        show::print(global.output, &[schedule], output::now(&onward))?;
    }
    Ok(Exit::Ok)
}

async fn remove(names: Names, global: &Global) -> Result<Exit, Problem> {
    let onward = open::existing(&global.store).await?;
    for name in names.names {
        let schedule = onward.schedule(name.as_str());
        let status = schedule.status().await?;
        schedule.remove().await?;
        match global.output {
            Format::Table => writeln!(output::stdout(), "removed {name}")?,
            Format::Json => output::print_json(&status)?,
            Format::Ids => writeln!(output::stdout(), "{name}")?,
        }
    }
    Ok(Exit::Ok)
}

async fn trigger(name: &str, global: &Global) -> Result<Exit, Problem> {
    let onward = open::existing(&global.store).await?;
    let occurred = onward.schedule(name).trigger().await?;
    print_occurred(&onward, &occurred, global.output).await?;
    Ok(if occurred.run().is_some() { Exit::Ok } else { Exit::No })
}

/// Prints what came of a trigger: the run, or why there is none.
async fn print_occurred(
    onward: &Onward,
    occurred: &Occurred,
    format: Format,
) -> Result<(), Problem> {
    if format == Format::Json {
        return output::print_json(occurred);
    }
    match (occurred, occurred.run()) {
        (_, Some(run)) => {
            let run = onward.run(run).status().await?;
            output::print_runs(format, &[run], output::now(onward))
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
