//! The demo: a workflow with a flaky service survives a SIGKILL, and the losses are counted.
//!
//! Owns: the demo as the program `onward-demo` and the command `onward demo` run it. This process is
//! the outside world: it keeps the `service`s, starts the runs, and starts, kills and restarts the
//! `worker` process (`phases`). Afterwards it gathers `evidence` from the store and from the
//! services' logs, which `check` judges and `report` prints. Nothing that is printed is assumed.
//!
//! A package of its own, so that a first look needs the library, SQLite and a terminal, and nothing
//! of the server, Postgres or TLS.

mod check;
mod error;
mod evidence;
mod folder;
mod phases;
mod progress;
mod report;
mod service;
mod worker;
mod workflow;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use onward::Onward;

pub use self::check::Findings;
pub use self::error::Error;
use self::evidence::Evidence;
use self::folder::Folder;
pub use self::folder::quoted;
use self::phases::Phases;
use self::progress::Bar;
use self::service::Services;
pub use self::worker::WorkerArgs;
use self::workflow::{Attachment, INDEX_ATTACHMENT};

/// The subcommand that starts the demo's worker process. A program with the demo must have it; its
/// arguments are [`WorkerArgs`].
pub const WORKER: &str = "demo-worker";

/// What the demo does, for a help text.
pub const ABOUT: &str = "Kill a worker halfway through 200 runs, and count what was lost";

/// The text below the options in a help text.
pub const AFTER_HELP: &str = "\
Each attachment is a run of three steps: find customer, ocr, update index. The OCR service fails one
call in five. Halfway, the worker process is killed with SIGKILL and another one is started. Then the
store is compared with the services' own logs. Exits with 1 if anything was lost or recorded twice.";

/// The options of the demo.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// The number of attachments
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=20_000))]
    runs: u64,
    /// Decides which calls of the OCR service fail [default: a new one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// A new folder for the database and the logs [default: one in the temporary directory]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// How the result is printed on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table, for people.
    Table,
    /// One line of JSON.
    Json,
}

impl DemoArgs {
    /// Runs the demo. `command` is what a user types before `dev` to open the dashboard.
    ///
    /// # Errors
    /// When the demo cannot be run. Lost work is not an error; it is reported in [`Findings`].
    pub async fn execute(self, form: Form, command: &str) -> Result<Findings, Error> {
        let folder = Folder::create(self.keep.clone())?;
        let counted = tokio::select! {
            counted = self.count(&folder, form, command) => counted,
            () = interrupted() => Err(Error::Interrupted),
        };
        match &counted {
            Ok(_) => {}
            // Nobody has seen a result yet, so nothing is worth keeping.
            Err(Error::Interrupted) if self.keep.is_none() => folder.remove(),
            Err(_) => report::print_left(&folder),
        }
        counted
    }

    async fn count(&self, folder: &Folder, form: Form, command: &str) -> Result<Findings, Error> {
        let seed = self.seed.unwrap_or_else(|| now_millis() % 10_000);
        report::print_opening(self.runs, seed);

        let services = Services::start(folder.path(), seed).await?;
        let onward = Onward::open(&folder.store_url()).await?;
        let attachments: Vec<_> = (1..=self.runs).map(Attachment::number).collect();
        start_all(&onward, &attachments).await?;
        let phases = Phases { onward: &onward, folder, services: &services };
        let recorded_at_kill = phases.run(self.runs).await?;
        let evidence = Evidence::gather(&onward, attachments, recorded_at_kill, folder).await?;

        let findings = check::check(&evidence);
        match findings.print(form) {
            // Nobody reads on, and the exit status still tells.
            Err(Error::OutputClosed) => {}
            printed => printed?,
        }
        report::print_next(folder, &evidence, command);
        Ok(findings)
    }
}

/// Waits until somebody asks the demo to end, from the keyboard or otherwise.
#[cfg(unix)]
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).ok();
    let (mut end, mut hangup) = (listen(SignalKind::terminate()), listen(SignalKind::hangup()));
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        Some(_) = async { end.as_mut()?.recv().await } => {}
        Some(_) = async { hangup.as_mut()?.recv().await } => {}
    }
}

/// Waits until somebody asks the demo to end.
#[cfg(not(unix))]
async fn interrupted() {
    let _ = tokio::signal::ctrl_c().await;
}

async fn start_all(onward: &Onward, attachments: &[Attachment]) -> Result<(), Error> {
    let mut bar = Bar::begin("start", attachments.len() as u64);
    onward.start_many(INDEX_ATTACHMENT, attachments.to_vec()).key(Attachment::key).await?;
    bar.set(attachments.len() as u64);
    bar.end("runs queued");
    Ok(())
}

fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}
