//! What is typed: the commands and the flags that all of them share.
//!
//! Owns: the way from the arguments to one function. The flags of a command are beside it.

use std::time::{Duration, SystemTime};

use clap::parser::ValueSource;
use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::copy::CopyArgs;
use crate::demo::DemoArgs;
use crate::demo::worker::DemoWorkerArgs;
use crate::keys::KeysCommand;
use crate::output::Format;
use crate::payloads::Payloads;
use crate::problem::{Exit, Problem};
use crate::prune::PruneArgs;
use crate::queues::QueuesCommand;
use crate::runs::RunsCommand;
use crate::schedules::SchedulesCommand;
#[cfg(feature = "server")]
use crate::server::{dev::DevArgs, serve::ServeArgs, tokens::TokensCommand};
use crate::signals::SignalsCommand;
use crate::start::StartArgs;

/// The store where none is named.
const STORE_DEFAULT: &str = "sqlite:onward.db";

/// Durable workflows: look at runs, start them, steer them.
#[derive(Debug, Parser)]
#[command(
    name = "onward",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  onward demo                              see a crash that costs nothing
  onward dev --demo --open                 the dashboard, with something to see
  onward runs list --state failed          what failed, newest first
  onward runs show ID                      its steps, and why it is not running
  onward runs list --state failed -o ids | onward runs retry -
  onward start index-attachment --from attachments.jsonl --key-field id
  onward schedules put nightly-report report --cron '0 3 * * *' --time-zone Europe/Berlin
  onward queues set ocr --concurrency 8 --rate 10/1s

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 no or failed,
2 usage, 3 not found, 4 the store cannot be used."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The flags that every command takes.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or memory:
    #[arg(long, global = true, env = "ONWARD_STORE", value_name = "URL")]
    #[arg(default_value = STORE_DEFAULT)]
    pub(crate) store: String,

    /// Whether the store was named on the command line, not by the environment or by default.
    #[arg(skip)]
    pub(crate) store_is_typed: bool,

    /// Whether nobody named the store.
    #[arg(skip)]
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only a server asks"))]
    pub(crate) store_is_default: bool,

    /// How data is printed: table, json (one object per line) or ids
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    #[arg(default_value_t = Format::Table, hide_possible_values = true)]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) payloads: Payloads,

    /// Logs more on stderr; twice for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(DemoArgs),
    #[command(subcommand)]
    Runs(RunsCommand),
    #[command(subcommand)]
    Keys(KeysCommand),
    #[command(subcommand)]
    Queues(QueuesCommand),
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    #[command(subcommand)]
    Signals(SignalsCommand),
    Start(StartArgs),
    #[cfg(feature = "server")]
    Serve(ServeArgs),
    #[cfg(feature = "server")]
    Dev(DevArgs),
    #[cfg(feature = "server")]
    #[command(subcommand)]
    Tokens(TokensCommand),
    Prune(PruneArgs),
    Copy(CopyArgs),
    #[command(hide = true)]
    DemoWorker(DemoWorkerArgs),
}

impl Args {
    /// What was typed; ends the process where that makes no sense.
    pub(crate) fn typed() -> Self {
        let matches = Args::command().get_matches();
        let mut args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let source = matches.value_source("store");
        args.global.store_is_typed = source == Some(ValueSource::CommandLine);
        args.global.store_is_default = source == Some(ValueSource::DefaultValue);
        // An empty variable is one that is not set.
        if args.global.store.is_empty() && source == Some(ValueSource::EnvVariable) {
            args.global.store = STORE_DEFAULT.to_owned();
            args.global.store_is_default = true;
        }
        args
    }

    /// Does what was typed.
    pub(crate) async fn execute(self) -> Result<Exit, Problem> {
        self.global.payloads.choose();
        match self.command {
            Command::Demo(demo) => demo.execute(&self.global).await,
            Command::Runs(runs) => runs.execute(&self.global).await,
            Command::Keys(keys) => keys.execute(&self.global).await,
            Command::Queues(queues) => queues.execute(&self.global).await,
            Command::Schedules(schedules) => schedules.execute(&self.global).await,
            Command::Signals(signals) => signals.execute(&self.global).await,
            Command::Start(start) => start.execute(&self.global).await,
            #[cfg(feature = "server")]
            Command::Serve(serve) => serve.execute(&self.global).await,
            #[cfg(feature = "server")]
            Command::Dev(dev) => dev.execute(&self.global).await,
            #[cfg(feature = "server")]
            Command::Tokens(tokens) => tokens.execute().await,
            Command::Prune(prune) => prune.execute(&self.global).await,
            Command::Copy(copy) => copy.execute(&self.global).await,
            Command::DemoWorker(worker) => worker.execute(&self.global).await,
        }
    }
}

/// A duration such as `30s`, `12h` or `30d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 30s, 12h or 30d"))
}

/// A time such as `2026-12-31T23:00:00Z`.
pub(crate) fn time(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|error| format!("{error}; write it as 2026-12-31T23:00:00Z"))
}

/// A tag, `name=value`.
pub(crate) fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a tag is written as name=value".to_owned()),
    }
}
