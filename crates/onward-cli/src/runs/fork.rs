//! `onward runs fork`: a new run with the first records of another.
//!
//! Owns: how a fork is asked for. Never chooses which records are copied; the store does.

use clap::Args;
use onward::{Json, RunId};

use crate::args::Global;
use crate::output;
use crate::place::{Fork, Place};
use crate::problem::{Exit, Problem};

/// Starts a new run with the records that another has before a step
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward runs fork ID --from 'update index'
  onward runs fork ID --from ocr --input '{\"file\": \"scan-2.pdf\"}' --key scan-2

What was recorded before the step is not done again. The new run has an id of its own, and so have
its steps: outside, it presents other idempotency keys than the run that it was forked from.")]
pub(crate) struct ForkArgs {
    /// The run's id
    #[arg(value_parser = super::id)]
    id: RunId,
    /// The step that is done again, with all that come after it; see 'onward runs show'
    #[arg(long, value_name = "STEP")]
    from: String,
    /// Another input, as JSON
    #[arg(long, value_name = "JSON", value_parser = crate::signals::json)]
    #[arg(allow_negative_numbers = true)]
    input: Option<Json>,
    /// The new run's key
    #[arg(long)]
    key: Option<String>,
}

impl ForkArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let fork = Fork { from_step: self.from, input: self.input, key: self.key };
        let run = place.fork(self.id, fork).await?;
        output::print_runs(global.output, &[run], place.now())?;
        Ok(Exit::Ok)
    }
}
