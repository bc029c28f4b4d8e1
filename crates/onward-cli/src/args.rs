//! What is typed: the commands and the flags that all of them share.
//!
//! Owns: the way from the arguments to one function. The flags of a command are beside it.

use std::future::ready;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::audit::AuditCommand;
use crate::config::Config;
use crate::copy::CopyArgs;
use crate::demo::DemoCommand;
use crate::doctor::DoctorArgs;
use crate::errors::ErrorsCommand;
use crate::keys::KeysCommand;
use crate::new::NewArgs;
use crate::ops::OpsCommand;
use crate::output::Format;
use crate::payloads::Payloads;
use crate::problem::{Exit, Problem};
use crate::prune::PruneArgs;
use crate::queues::QueuesCommand;
use crate::redraw;
use crate::runs::RunsCommand;
use crate::schedules::SchedulesCommand;
#[cfg(feature = "server")]
use crate::server::{dev::DevArgs, serve::ServeArgs, tokens::TokensCommand};
use crate::shell::{CompletionsArgs, ManArgs};
use crate::signals::SignalsCommand;
use crate::start::StartArgs;
use crate::stats::StatsArgs;
use crate::workers::WorkersCommand;
use crate::workflows::WorkflowsCommand;

/// The store where none is named.
const STORE_DEFAULT: &str = "sqlite:onward.db";

/// The variable that holds an application's database.
pub(crate) const DATABASE: &str = "DATABASE_URL";

/// The variable that holds the token for a server.
const TOKEN: &str = "ONWARD_TOKEN";

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
  onward doctor                            what is wrong, and what to do about it
  onward --server http://db-1:7171 stats   the same of a server, with ONWARD_TOKEN
  onward runs list --state failed -o ids | onward runs retry -
  onward start index-attachment --from attachments.jsonl --key-field key
  onward schedules put nightly-report report --cron '0 3 * * *' --time-zone Europe/Berlin
  onward queues set ocr --concurrency 8 --rate 10/1s

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 no or failed,
2 usage, 3 not found, 4 the store or the server cannot be used, 130 and 143 interrupted."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The flags that every command takes.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or memory: [default: that of onward.toml,
    /// else DATABASE_URL, else sqlite:onward.db]
    // A password may stand in it, and a help text is pasted into reports.
    #[arg(long, global = true, env = "ONWARD_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,

    /// Whether the store was named on the command line, not by the environment or by default.
    #[arg(skip)]
    pub(crate) store_is_typed: bool,

    /// Whether the server was named on the command line, not by the environment.
    #[arg(skip)]
    pub(crate) server_is_typed: bool,

    /// A server instead of a store: http://HOST:PORT, or https://HOST/PATH
    #[arg(long, global = true, env = "ONWARD_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,

    /// The file with the server's token; ONWARD_TOKEN may hold the token instead
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// The file of settings [default: onward.toml, if it is there]
    #[arg(long, global = true, env = "ONWARD_CONFIG", value_name = "FILE", value_parser = path())]
    pub(crate) config: Option<PathBuf>,

    /// How data is printed: table, json (one object per line) or ids
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    #[arg(default_value_t = Format::Table, hide_possible_values = true)]
    pub(crate) output: Format,

    /// Looks again every N seconds, 2 when no number is given; for commands that only look
    #[arg(long, global = true, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "2", value_parser = redraw::seconds)]
    pub(crate) watch: Option<Duration>,

    #[command(flatten)]
    pub(crate) payloads: Payloads,

    /// Logs more on stderr; twice for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Demo(DemoCommand),
    New(NewArgs),
    Start(StartArgs),
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
    #[command(subcommand)]
    Ops(OpsCommand),
    #[command(subcommand)]
    Errors(ErrorsCommand),
    #[command(subcommand)]
    Workflows(WorkflowsCommand),
    #[command(subcommand)]
    Workers(WorkersCommand),
    Stats(StatsArgs),
    #[command(subcommand)]
    Audit(AuditCommand),
    Doctor(DoctorArgs),
    #[cfg(feature = "server")]
    Serve(ServeArgs),
    #[cfg(feature = "server")]
    Dev(DevArgs),
    #[cfg(feature = "server")]
    #[command(subcommand)]
    Tokens(TokensCommand),
    Prune(PruneArgs),
    Copy(CopyArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(name = onward_demo::WORKER, hide = true)]
    DemoWorker(onward_demo::WorkerArgs),
}

impl Args {
    /// What was typed; ends the process where that makes no sense.
    pub(crate) fn typed() -> Self {
        let matches = Args::command().get_matches();
        let mut args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let is_typed = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        args.global.store_is_typed = is_typed("store");
        args.global.server_is_typed = is_typed("server");
        args
    }

    /// Does what was typed.
    pub(crate) async fn execute(self) -> Result<Exit, Problem> {
        self.global.payloads.choose();
        let Args { global, command } = self;
        match global.watch {
            None => command.execute(&global).await,
            Some(every) if command.only_looks() => {
                redraw::repeat(every, async || command.clone().execute(&global).await).await
            }
            Some(_) => {
                let why = "--watch is for commands that only look, as 'onward runs list'; a run is \
                           followed to its end with 'onward runs watch ID'";
                Err(Problem::Usage(why.to_owned()))
            }
        }
    }
}

impl Command {
    /// Whether doing it again changes nothing.
    fn only_looks(&self) -> bool {
        match self {
            Command::Runs(runs) => runs.only_looks(),
            Command::Keys(keys) => keys.only_looks(),
            Command::Queues(queues) => queues.only_looks(),
            Command::Schedules(schedules) => schedules.only_looks(),
            Command::Ops(ops) => ops.only_looks(),
            Command::Errors(errors) => errors.only_looks(),
            Command::Workflows(_)
            | Command::Workers(_)
            | Command::Stats(_)
            | Command::Audit(_)
            | Command::Doctor(_) => true,
            _ => false,
        }
    }

    /// Boxed: one future that holds all commands costs a fifth of this program's build time.
    fn execute(self, global: &Global) -> Pending<'_> {
        match self {
            Command::Demo(demo) => Box::pin(demo.execute(global)),
            Command::New(new) => Box::pin(ready(new.execute())),
            Command::Start(start) => Box::pin(start.execute(global)),
            Command::Runs(runs) => Box::pin(runs.execute(global)),
            Command::Keys(keys) => Box::pin(keys.execute(global)),
            Command::Queues(queues) => Box::pin(queues.execute(global)),
            Command::Schedules(schedules) => Box::pin(schedules.execute(global)),
            Command::Signals(signals) => Box::pin(signals.execute(global)),
            Command::Ops(ops) => Box::pin(ops.execute(global)),
            Command::Errors(errors) => Box::pin(errors.execute(global)),
            Command::Workflows(workflows) => Box::pin(workflows.execute(global)),
            Command::Workers(workers) => Box::pin(workers.execute(global)),
            Command::Stats(stats) => Box::pin(stats.execute(global)),
            Command::Audit(audit) => Box::pin(audit.execute(global)),
            Command::Doctor(doctor) => Box::pin(doctor.execute(global)),
            #[cfg(feature = "server")]
            Command::Serve(serve) => Box::pin(serve.execute(global)),
            #[cfg(feature = "server")]
            Command::Dev(dev) => Box::pin(dev.execute(global)),
            #[cfg(feature = "server")]
            Command::Tokens(tokens) => Box::pin(ready(tokens.execute(global))),
            Command::Prune(prune) => Box::pin(prune.execute(global)),
            Command::Copy(copy) => Box::pin(copy.execute(global)),
            Command::Completions(shell) => Box::pin(ready(shell.execute(Args::command()))),
            Command::Man(man) => Box::pin(ready(man.execute(Args::command()))),
            Command::DemoWorker(worker) => Box::pin(async move {
                worker.execute().await?;
                Ok(Exit::Ok)
            }),
        }
    }
}

/// A command that is being executed.
type Pending<'a> = Pin<Box<dyn Future<Output = Result<Exit, Problem>> + 'a>>;

impl Global {
    /// The store that is meant: `--store`, `ONWARD_STORE`, the file of settings, `DATABASE_URL`, the
    /// default. The same for every command, so that none looks at another store than a server beside it.
    pub(crate) fn store(&self) -> Result<String, Problem> {
        // An empty variable is one that is not set.
        let set = |url: &String| !url.is_empty();
        if let Some(url) = self.store.clone().filter(|url| self.store_is_typed || set(url)) {
            return Ok(url);
        }
        let of_file = Config::read(self.config.as_deref())?.store;
        let of_environment = || std::env::var(DATABASE).ok().filter(set);
        Ok(of_file.or_else(of_environment).unwrap_or_else(|| STORE_DEFAULT.to_owned()))
    }

    /// The server that is meant, if it is one. What is typed counts before the environment, and of
    /// two variables the one that names a server.
    pub(crate) fn server(&self) -> Result<Option<&str>, Problem> {
        let server = self.server.as_deref().filter(|url| !url.is_empty());
        match (self.server_is_typed, self.store_is_typed) {
            (true, true) => {
                let why = "--server and --store name two places; leave one of them out";
                Err(Problem::Usage(why.to_owned()))
            }
            (false, true) => Ok(None),
            _ => Ok(server),
        }
    }

    /// The token for the server: of the file, or of the environment. Never of the command line,
    /// where every user of the machine could read it.
    pub(crate) fn token(&self) -> Result<Option<String>, Problem> {
        let token = match &self.token_file {
            Some(path) => {
                let what = format!("cannot read the token of {}", path.display());
                let text = std::fs::read_to_string(path).map_err(Problem::io(what))?;
                if text.split_whitespace().count() > 1 {
                    let why = "--token-file holds more than a token: it is the file with the token \
                               itself, not the server's file of hashes";
                    return Err(Problem::Usage(why.to_owned()));
                }
                Some(text)
            }
            None => std::env::var(TOKEN).ok(),
        };
        Ok(token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()))
    }
}

/// A path; an empty one too, which a variable may hold that is not set.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
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

/// How many rows are printed.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Most {
    /// How many at the most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

impl Most {
    pub(crate) fn rows(&self) -> usize {
        self.limit.into()
    }
}
