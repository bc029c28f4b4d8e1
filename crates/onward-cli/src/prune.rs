//! `onward prune`: deletes runs that ended long ago.
//!
//! Owns: the filter and the count that is printed. Never deletes a run that has not ended.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onward::{Prune, RunState};
use serde::Serialize;

use crate::args::{self, Global};
use crate::output::{self, Format};
use crate::problem::{Exit, Problem};
use crate::{open, text};

/// Deletes runs that ended long ago, with their history and keys
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward prune --older-than 30d --dry-run
  onward prune --older-than 7d --state completed

Runs that have not ended are never touched.")]
pub(crate) struct PruneArgs {
    /// Only runs that ended at least this long ago, as 30d or 12h
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    older_than: Duration,
    /// Only runs that ended this way; may be repeated, and means all three when left out
    #[arg(long, value_enum)]
    state: Vec<FinalState>,
    /// Counts only
    #[arg(long)]
    dry_run: bool,
}

/// The states in which nothing more happens to a run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FinalState {
    Completed,
    Failed,
    Cancelled,
}

/// A prune as it is printed with `-o json`.
#[derive(Serialize)]
struct Pruned {
    runs: u64,
    dry_run: bool,
}

impl PruneArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            return Err(Problem::Usage("prune counts runs; it does not list their ids".to_owned()));
        }
        global.only_store("'onward prune'")?;
        let onward = open::existing(&global.store()?).await?;
        let runs = onward.prune(self.prune()).await?;
        match global.output {
            Format::Json => output::print_json(&Pruned { runs, dry_run: self.dry_run })?,
            _ => {
                let verb = if self.dry_run { "would delete" } else { "deleted" };
                writeln!(output::stdout(), "{verb} {}", text::count(runs, "run"))?;
            }
        }
        Ok(Exit::Ok)
    }

    fn prune(&self) -> Prune {
        let states = self.state.iter().map(|state| RunState::from(*state));
        let prune = Prune::older_than(self.older_than).states(states);
        if self.dry_run { prune.dry_run() } else { prune }
    }
}

impl From<FinalState> for RunState {
    fn from(state: FinalState) -> Self {
        match state {
            FinalState::Completed => RunState::Completed,
            FinalState::Failed => RunState::Failed,
            FinalState::Cancelled => RunState::Cancelled,
        }
    }
}
