//! `onward signals`: messages to runs.

use clap::Subcommand;
use onward::{Json, RunId};

use crate::args::Global;
use crate::open;
use crate::problem::{Exit, Problem};
use crate::runs::id;

/// Sends signals to runs
#[derive(Debug, Subcommand)]
pub(crate) enum SignalsCommand {
    /// Sends a run a signal; it is kept until the run waits for one of that name
    #[command(after_help = "\
Examples:
  onward signals send ID approved true
  onward signals send ID paid '{\"invoice\": 12}' --key payment-12

With a key, a signal that is sent again is delivered once.")]
    Send {
        /// The run's id
        #[arg(value_name = "ID", value_parser = id)]
        run: RunId,
        /// The signal's name
        name: String,
        /// What it carries, as JSON
        #[arg(default_value = "null", value_parser = json)]
        value: Json,
        /// Names this signal, so that it can be sent again safely
        #[arg(long)]
        key: Option<String>,
    },
}

impl SignalsCommand {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let SignalsCommand::Send { run, name, value, key } = self;
        let onward = open::existing(&global.store).await?;
        let mut signal = onward.run(run).signal(&name, &value);
        if let Some(key) = key {
            signal = signal.key(key);
        }
        signal.await?;
        eprintln!("sent {name:?} to run {run}");
        Ok(Exit::Ok)
    }
}

fn json(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|error| format!("{error}; a text is written as '\"text\"'"))
}
