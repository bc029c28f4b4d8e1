//! `onward workers`: who serves the store.
//!
//! Owns: how a worker is printed. Never decides whether one is alive; the store does.

use clap::{Args, Subcommand};
use onward::store::WorkerInfo;
use onward::{Timestamp, WorkerId};

use crate::args::Global;
use crate::ops::OPERATION;
use crate::output;
use crate::place::{Call, Page, Place};
use crate::problem::{Exit, Problem};
use crate::table::Table;
use crate::text;

/// Characters of a place, a build or names in a list.
const NAME_CHARS: usize = 40;

/// Looks at workers
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// Lists the workers that are up
    #[command(after_help = "Example:\n  onward workers list --watch")]
    List,
    Show(ShowArgs),
}

/// Shows a worker: where it lives, what it serves, how much it holds
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  onward workers show ID")]
pub(crate) struct ShowArgs {
    /// The worker's id, of 'onward workers list'
    id: WorkerId,
}

impl WorkersCommand {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let all = all(&place).await?;
        match self {
            WorkersCommand::List => {
                output::print_rows(global.output, &all, table_at(place.now()), id)?;
            }
            WorkersCommand::Show(ShowArgs { id: wanted }) => {
                let Some(found) = all.iter().find(|worker| worker.id == wanted) else {
                    return Err(Problem::NotThere(format!(
                        "no worker {wanted} is up. Those that are: onward workers list"
                    )));
                };
                let whole = |rows: &[WorkerInfo]| whole(&rows[0], place.now());
                output::print_rows(global.output, std::slice::from_ref(found), whole, id)?;
            }
        }
        Ok(Exit::Ok)
    }
}

/// The workers that are up and serve something of the user's: the one that each server has for changes
/// of many runs is no sign that anybody is at work.
pub(crate) async fn all(place: &Place) -> Result<Vec<WorkerInfo>, Problem> {
    let of_user = |worker: &WorkerInfo| worker.workflows.iter().any(|name| name != OPERATION);
    Ok(with_servers(place).await?.into_iter().filter(of_user).collect())
}

/// The workers that are up, with those of servers where the place is a store; a server does not show
/// its own.
pub(crate) async fn with_servers(place: &Place) -> Result<Vec<WorkerInfo>, Problem> {
    Ok(match place {
        Place::Store(onward) => onward.stats().await?.workers,
        Place::Server(_) => place.ask::<Page<WorkerInfo>>(&Call::get("/workers")).await?.items,
    })
}

fn id(worker: &WorkerInfo) -> String {
    worker.id.to_string()
}

fn table_at(now: Timestamp) -> impl Fn(&[WorkerInfo]) -> Table<6> {
    move |rows| {
        let mut table = Table::new(["ID", "PLACE", "BUILD", "RUNNING", "QUEUES", "LEASE"]);
        for worker in rows {
            table.row([
                worker.id.to_string().into(),
                text::cut(&worker.place, NAME_CHARS).into(),
                text::cut(&worker.build, NAME_CHARS).into(),
                worker.running.to_string().into(),
                text::cut(&worker.queues.join(", "), NAME_CHARS).into(),
                lease(worker, now).into(),
            ]);
        }
        table
    }
}

fn whole(worker: &WorkerInfo, now: Timestamp) -> Table<2> {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.into(), text::line(&value).into()]);
    row("worker", worker.id.to_string());
    row("place", worker.place.clone());
    row("build", worker.build.clone());
    row("running", text::count(worker.running, "run"));
    row("lease", lease(worker, now));
    for queue in &worker.queues {
        row("queue", queue.clone());
    }
    for workflow in &worker.workflows {
        row("workflow", workflow.clone());
    }
    table
}

fn lease(worker: &WorkerInfo, now: Timestamp) -> String {
    match worker.lease_until > now {
        true => format!("{} left", text::duration(worker.lease_until.since(now))),
        false => format!("expired {} ago", text::duration(now.since(worker.lease_until))),
    }
}
