//! `onward queues`: limits of queues, and what is in them.
//!
//! Owns: the commands. `set` says all limits of a queue, `show` prints one, `list` all.

mod set;
mod show;

use std::io::Write;

use clap::{Args, Subcommand};

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};

/// Looks at queues, limits and pauses them
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum QueuesCommand {
    /// Lists the queues that are set up or have live runs
    List,
    /// Shows a queue, its limits and what is in it
    #[command(after_help = "Example:\n  onward queues show ocr")]
    Show(Name),
    Set(set::SetArgs),
    /// Pauses queues: no worker takes a run of them; what is running goes on
    Pause(Names),
    /// Lets paused queues go on
    Resume(Names),
    /// Takes all limits from queues, and their pause
    Clear(Names),
}

/// The queue that a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Name {
    /// The queue's name
    name: String,
}

/// The queues that a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Names {
    /// The queues' names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

impl QueuesCommand {
    /// Whether doing it again changes nothing.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self, QueuesCommand::List | QueuesCommand::Show(_))
    }

    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        match self {
            QueuesCommand::List => show::list(global).await,
            QueuesCommand::Show(Name { name }) => show::show(&name, global).await,
            QueuesCommand::Set(set) => set.execute(global).await,
            QueuesCommand::Pause(names) => pause(names, global).await,
            QueuesCommand::Resume(names) => resume(names, global).await,
            QueuesCommand::Clear(names) => clear(names, global).await,
        }
    }
}

async fn pause(names: Names, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    for name in names.names {
        let queue = place.pause_queue(&name).await?;
        show::print_queue(global.output, &queue, place.now())?;
    }
    Ok(Exit::Ok)
}

async fn resume(names: Names, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    for name in names.names {
        let queue = place.resume_queue(&name).await?;
        show::print_queue(global.output, &queue, place.now())?;
    }
    Ok(Exit::Ok)
}

async fn clear(names: Names, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    for name in names.names {
        let (had, queue) = place.clear_queue(&name).await?;
        match global.output {
            Format::Table if had => writeln!(output::stdout(), "cleared {name}")?,
            Format::Table => writeln!(output::stdout(), "{name} had no limits")?,
            Format::Json => output::print_json(&queue)?,
            Format::Ids => writeln!(output::stdout(), "{name}")?,
        }
    }
    Ok(Exit::Ok)
}
