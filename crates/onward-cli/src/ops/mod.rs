//! `onward ops`: changes of many runs that servers carry out, durably.
//!
//! Owns: the commands, and how an operation is printed. Never changes a run itself; whoever executes
//! the operation does.

mod begin;

use clap::{Args, Subcommand};
use onward::{RunId, Timestamp};

pub(crate) use self::begin::{NewOperation, OPERATION};
use self::begin::{Operation, StartArgs};
use crate::args::{Global, Most};
use crate::output::{self, Format};
use crate::place::{Call, Place};
use crate::problem::{Exit, Problem};
use crate::runs::steer::refuse;
use crate::runs::{Ids, id};
use crate::table::{Cell, Table, style_of};
use crate::text;

/// Looks at changes of many runs, begins and aborts them
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum OpsCommand {
    List(ListArgs),
    /// Shows a change of many runs, and how far it is
    #[command(after_help = "Example:\n  onward ops show ID --watch")]
    Show(Id),
    Start(Box<StartArgs>),
    /// Stops changes of many runs; runs that are changed stay changed
    #[command(
        after_help = "Examples:\n  onward ops abort ID\n  onward ops list -o ids | onward ops abort -"
    )]
    Abort(Ids),
}

/// Lists changes of many runs, newest first
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  onward ops list --limit 5")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    most: Most,
}

/// The operation that a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Id {
    /// The operation's id
    #[arg(value_parser = id)]
    id: RunId,
}

impl OpsCommand {
    /// Whether doing it again changes nothing.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self, OpsCommand::List(_) | OpsCommand::Show(_))
    }

    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        match self {
            OpsCommand::List(list) => list.execute(global).await,
            OpsCommand::Show(Id { id }) => {
                let place = Place::open(global).await?;
                print(global.output, &[Operation::of(&place, id).await?], place.now())?;
                Ok(Exit::Ok)
            }
            OpsCommand::Start(start) => start.execute(global).await,
            OpsCommand::Abort(ids) => abort(ids, global).await,
        }
    }
}

impl ListArgs {
    async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let (rows, _) = place.rows(Call::get("/operations"), None, self.most.rows()).await?;
        print(global.output, &rows, place.now())?;
        Ok(Exit::Ok)
    }
}

async fn abort(ids: Ids, global: &Global) -> Result<Exit, Problem> {
    if ids.are_left_out() {
        let why = "name the operations by their ids, or - for ids from stdin";
        return Err(Problem::Usage(why.to_owned()));
    }
    let ids = ids.read()?;
    let place = Place::open(global).await?;
    let (mut worst, mut aborted) = (Exit::Ok, Vec::new());
    for id in ids {
        let call = Call::post(format!("/operations/{id}/abort"));
        match place.ask::<Operation>(&call).await {
            Ok(operation) => aborted.push(operation),
            // One that has ended does not stop the others.
            Err(problem) => worst = worst.max(refuse(problem)?),
        }
    }
    if !aborted.is_empty() {
        print(global.output, &aborted, place.now())?;
    }
    Ok(worst)
}

/// Prints operations, one per line.
pub(super) fn print(format: Format, rows: &[Operation], now: Timestamp) -> Result<(), Problem> {
    let table = |rows: &[Operation]| {
        let mut table =
            Table::new(["ID", "ACTION", "STATE", "DONE", "SKIPPED", "FAILED", "BY", "AGE"]);
        for it in rows {
            table.row([
                it.id.to_string().into(),
                it.action.as_str().into(),
                Cell::styled(it.state.as_str(), style_of(it.like())),
                it.share().into(),
                it.skipped.to_string().into(),
                it.failed.to_string().into(),
                text::cut(&it.by, NAME_CHARS).into(),
                text::duration(now.since(it.created_at)).into(),
            ]);
        }
        table
    };
    output::print_rows(format, rows, table, |it| it.id.to_string())
}

/// Characters of a name in a list.
const NAME_CHARS: usize = 32;
