//! `onward demo`: a flaky workflow survives a SIGKILL, and the losses are counted.
//!
//! Owns: the course of the demo. This process is the outside world: it keeps the `service`s, starts
//! the runs, and starts, kills and restarts the `worker` process. Afterwards it gathers `evidence`
//! from the store and from the services' logs, which `check` judges and `report` prints. Nothing
//! that is printed is assumed.

mod check;
mod evidence;
mod report;
mod service;
mod stage;
mod workflow;

pub(crate) mod worker;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Arg, Args};
use onward::Onward;

use self::evidence::Evidence;
use self::service::Services;
use self::stage::Stage;
use self::workflow::{Attachment, INDEX_ATTACHMENT};
use crate::args::Global;
use crate::open;
use crate::output::{self, Format};
use crate::problem::{Exit, Problem};

/// Indexes attachments with a flaky OCR service, kills the worker halfway, and counts the losses
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
What happens: each attachment is a run of three steps, find customer, ocr, update index. The OCR
service fails one call in five. Halfway the worker process is killed with SIGKILL and another is
started. Then the store and the services' own logs are compared. Exits with 1 if anything was
lost or recorded twice.")]
// Takes the place of the flag of every command, which the demo refuses and should not show.
#[command(arg = Arg::new("store").long("store").value_name("URL").hide(true))]
pub(crate) struct DemoArgs {
    /// How many attachments
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=20_000))]
    runs: u64,
    /// Decides which calls of the OCR service fail; any when left out
    #[arg(long)]
    seed: Option<u64>,
    /// Keeps the database and the logs in this new folder instead of one among the temporary files;
    /// either is left in place, and may be deleted
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl DemoArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            return Err(Problem::Usage("the demo prints counts, not ids".to_owned()));
        }
        if global.store_is_typed {
            let why = "the demo has a store of its own; choose where it is kept with --keep DIR";
            return Err(Problem::Usage(why.to_owned()));
        }
        let seed = self.seed.unwrap_or_else(any_seed);
        let folder = Folder::create(self.keep)?;
        report::print_opening(self.runs, seed);

        let services = Services::start(folder.path(), seed).await?;
        let onward = open::created(&folder.store_url()).await?;
        let attachments: Vec<_> = (1..=self.runs).map(Attachment::number).collect();
        start_all(&onward, &attachments).await?;

        let stage = Stage { onward: &onward, folder: &folder, services: &services };
        let recorded_at_kill = stage.play(self.runs).await?;

        let evidence = Evidence::gather(&onward, attachments, recorded_at_kill, &folder).await?;
        let findings = check::check(&evidence);
        match global.output {
            Format::Json => output::print_json(&findings)?,
            _ => findings.print()?,
        }
        report::print_next(&folder, &evidence);
        Ok(if findings.is_clean() { Exit::Ok } else { Exit::No })
    }
}

async fn start_all(onward: &Onward, attachments: &[Attachment]) -> Result<(), Problem> {
    let items = attachments.to_vec();
    onward.start_many(INDEX_ATTACHMENT, items).key(Attachment::key).await?;
    Ok(())
}

fn any_seed() -> u64 {
    now_millis() % 10_000
}

fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

/// Where the demo keeps its database and logs.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn create(keep: Option<PathBuf>) -> Result<Self, Problem> {
        let (path, created) = match keep {
            Some(path) if path.join("onward.db").exists() => {
                let why = format!("{} holds a demo already; name a new folder", path.display());
                return Err(Problem::Usage(why));
            }
            Some(path) => (path.clone(), std::fs::create_dir_all(path)),
            None => {
                // Not created if it exists, so that nobody can lay out the folder beforehand.
                let path = std::env::temp_dir().join(format!("onward-demo-{}", now_millis()));
                (path.clone(), std::fs::create_dir(path))
            }
        };
        created.map_err(Problem::io(format!("cannot create {}", path.display())))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn store_url(&self) -> String {
        open::sqlite_url(&self.0.join("onward.db"))
    }
}
