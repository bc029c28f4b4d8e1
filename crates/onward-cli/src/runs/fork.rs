//! `onward runs fork`: a new run with the first records of another.
//!
//! Owns: how a fork is asked for. Never chooses which records are copied; the store does.

use clap::Args;
use onward::{Json, RunId};

use crate::args::Global;
use crate::problem::{Exit, Problem};
use crate::{open, output};

/// Starts a new run with the records that another has before a step
#[derive(Debug, Args)]
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
    input: Option<Json>,
    /// The new run's key
    #[arg(long)]
    key: Option<String>,
}

impl ForkArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let onward = open::existing(&global.store).await?;
        let mut fork = onward.run(self.id).fork(self.from);
        if let Some(input) = &self.input {
            fork = fork.input(input);
        }
        if let Some(key) = self.key {
            fork = fork.key(key);
        }
        let run = fork.await?.status().await?;
        output::print_runs(global.output, &[run], output::now(&onward))?;
        Ok(Exit::Ok)
    }
}
