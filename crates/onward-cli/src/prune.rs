//! `onward prune`: deletes runs that ended long ago.
//!
//! Owns: the filter, the question, and the count that is printed. Never deletes a run that has not ended.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onward::{Prune, RunState};
use serde::{Deserialize, Serialize};

use crate::args::{self, Global};
use crate::output::{self, Format};
use crate::place::{Call, Place, Verb};
use crate::problem::{Exit, Problem};
use crate::runs::many;
use crate::text;

/// Deletes runs that ended long ago, with their history and keys
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward prune --older-than 30d --dry-run
  onward prune --older-than 7d --state completed --yes

Runs that have not ended are never touched. This cannot be taken back.")]
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
    /// Does not ask; needed where there is no terminal to ask on
    #[arg(long, short)]
    yes: bool,
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

/// A prune, as a server is asked for it.
#[derive(Serialize)]
struct NewPrune<'a> {
    older_than_ms: i64,
    state: &'a [RunState],
    dry_run: bool,
}

/// What a server did in one call.
#[derive(Deserialize)]
struct Batch {
    runs: u64,
    /// Whether its time was over before the last of them. Asked again, it goes on.
    more: bool,
}

impl PruneArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            return Err(Problem::Usage("prune counts runs; it does not list their ids".to_owned()));
        }
        let place = Place::open(global).await?;
        if self.dry_run || !self.yes {
            let would = prune(&place, self.prune().dry_run()).await?;
            if self.dry_run || would == 0 {
                return self.print(global, would);
            }
            let sentence = format!("would delete {}", text::count(would, "run"));
            if !many::asked(Verb::Delete, would, &sentence)? {
                return Ok(Exit::No);
            }
        }
        let runs = prune(&place, self.prune()).await?;
        self.print(global, runs)
    }

    fn prune(&self) -> Prune {
        let states = self.state.iter().map(|state| RunState::from(*state));
        Prune::older_than(self.older_than).states(states)
    }

    fn print(&self, global: &Global, runs: u64) -> Result<Exit, Problem> {
        match global.output {
            Format::Json => output::print_json(&Pruned { runs, dry_run: self.dry_run })?,
            _ => {
                let verb = if self.dry_run { "would delete" } else { "deleted" };
                writeln!(output::stdout(), "{verb} {}", text::count(runs, "run"))?;
            }
        }
        Ok(Exit::Ok)
    }
}

/// Deletes the runs, or counts them. A server is asked as often as it says that there are more.
async fn prune(place: &Place, prune: Prune) -> Result<u64, Problem> {
    if let Place::Store(onward) = place {
        return Ok(onward.prune(prune).await?);
    }
    let Prune { older_than_ms, states, dry_run, .. } = &prune;
    let new = NewPrune { older_than_ms: *older_than_ms, state: states, dry_run: *dry_run };
    let call = Call::post("/prune").body(&new)?;
    let mut runs = 0;
    loop {
        let batch: Batch = place.ask(&call).await?;
        runs += batch.runs;
        if !batch.more {
            return Ok(runs);
        }
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
