//! `onward runs`: looking at runs and steering them.
//!
//! Owns: the commands, one file each, and the ids they take.

pub(crate) mod filter;
mod fork;
mod list;
mod log;
pub(crate) mod many;
mod show;
pub(crate) mod steer;
mod watch;

use clap::{Args, Subcommand};
use onward::RunId;

use crate::args::Global;
use crate::place::Verb;
use crate::problem::{Exit, Problem};

/// Looks at runs and steers them
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RunsCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Watch(watch::WatchArgs),
    /// Asks runs to end; a body that executes is told within a second
    #[command(after_help = steer::CANCEL_EXAMPLES)]
    Cancel(steer::SteerArgs),
    /// Lets failed or stuck runs go on from the step that failed
    #[command(after_help = steer::RETRY_EXAMPLES)]
    Retry(steer::SteerArgs),
    /// Pauses runs: the step that executes is let finish, nothing new begins
    #[command(after_help = steer::PAUSE_EXAMPLES)]
    Pause(steer::SteerArgs),
    /// Lets paused runs go on
    #[command(after_help = steer::RESUME_EXAMPLES)]
    Resume(steer::SteerArgs),
    /// Deletes runs that have ended, with their history and keys
    #[command(after_help = steer::DELETE_EXAMPLES)]
    Delete(steer::DeleteArgs),
    Fork(fork::ForkArgs),
    Log(log::LogArgs),
}

/// The runs that a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Ids {
    /// Run ids, or - to read them from stdin, one per line
    #[arg(value_name = "ID", value_parser = id_or_stdin)]
    ids: Vec<IdArg>,
}

impl Ids {
    /// Whether none were named, not even a place to read them from.
    pub(crate) fn are_left_out(&self) -> bool {
        self.ids.is_empty()
    }
}

/// An id, or the place where more of them are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdArg {
    Id(RunId),
    Stdin,
}

impl RunsCommand {
    /// Whether doing it again changes nothing.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self, RunsCommand::List(_) | RunsCommand::Show(_))
    }

    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        match self {
            RunsCommand::List(list) => list.execute(global).await,
            RunsCommand::Show(show) => show.execute(global).await,
            RunsCommand::Watch(watch) => watch.execute(global).await,
            RunsCommand::Cancel(args) => args.execute(Verb::Cancel, global).await,
            RunsCommand::Retry(args) => args.execute(Verb::Retry, global).await,
            RunsCommand::Pause(args) => args.execute(Verb::Pause, global).await,
            RunsCommand::Resume(args) => args.execute(Verb::Resume, global).await,
            RunsCommand::Delete(args) => args.execute(global).await,
            RunsCommand::Fork(fork) => fork.execute(global).await,
            RunsCommand::Log(log) => log.execute(global).await,
        }
    }
}

fn id_or_stdin(text: &str) -> Result<IdArg, String> {
    if text == "-" {
        return Ok(IdArg::Stdin);
    }
    id(text).map(IdArg::Id)
}

/// A run's whole id.
pub(crate) fn id(text: &str) -> Result<RunId, String> {
    text.parse().map_err(|error: onward::Error| {
        format!("{} For a key: onward keys show WORKFLOW KEY", error.code().advice())
    })
}
