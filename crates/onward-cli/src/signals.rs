//! `onward signals`: messages to runs.
//!
//! Owns: how a signal is sent and a callback answered. Never waits for what comes of it.

use clap::Subcommand;
use onward::{Json, RunId};

use crate::args::Global;
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::runs::id;

/// Sends signals to runs
#[derive(Clone, Debug, Subcommand)]
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
        #[arg(default_value = "null", value_parser = json, allow_negative_numbers = true)]
        value: Json,
        /// Names this signal, so that it can be sent again safely
        #[arg(long)]
        key: Option<String>,
    },
    /// Answers a callback; the token is read from stdin with -
    #[command(after_help = "\
Example:
  onward signals resolve - '{\"approved\": true}' < token.txt

A token is a secret: given as an argument, other users of this machine may see it.")]
    Resolve {
        /// The token, or - to read it from stdin
        token: String,
        /// The answer, as JSON
        #[arg(default_value = "null", value_parser = json, allow_negative_numbers = true)]
        value: Json,
    },
}

impl SignalsCommand {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        match self {
            SignalsCommand::Send { run, name, value, key } => {
                let place = Place::open(global).await?;
                place.signal(run, &name, &value, key.as_deref()).await?;
                eprintln!("sent {name:?} to run {run}");
            }
            SignalsCommand::Resolve { token, value } => {
                let token =
                    if token == "-" { std::io::read_to_string(std::io::stdin())? } else { token };
                Place::open(global).await?.resolve(&token, &value).await?;
                eprintln!("answered");
            }
        }
        Ok(Exit::Ok)
    }
}

/// A value, written as JSON.
pub(crate) fn json(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|error| format!("{error}; a text is written as '\"text\"'"))
}
