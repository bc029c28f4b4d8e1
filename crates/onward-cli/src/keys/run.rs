//! `onward keys list`, `top` and `conflicts`: keys of runs, and what came second.
//!
//! Owns: how these are printed. What counts as a conflict is the store's.

use clap::Args;
use onward::Timestamp;
use onward::store::{KeyConflict, RunKey};

use crate::args::{Global, Most};
use crate::output;
use crate::place::{Call, Place};
use crate::problem::{Exit, Problem};
use crate::table::Table;
use crate::text;

/// Characters of a key or a name in a list.
const NAME_CHARS: usize = 40;

/// Lists the keys of runs, by what they begin with
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward keys list --prefix order-
  onward keys list --workflow bill --limit 10")]
pub(crate) struct ListArgs {
    /// What they begin with
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Of this workflow
    #[arg(long)]
    workflow: Option<String>,
    #[command(flatten)]
    most: Most,
}

impl ListArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let call = Call::get("/keys")
            .query_if("prefix", self.prefix.as_deref())
            .query_if("workflow", self.workflow.as_deref());
        let (keys, more) = place.rows::<RunKey>(call, None, self.most.rows()).await?;
        print(global, &keys, place.now())?;
        if more.is_some() {
            anstream::eprintln!("more follow: say more of the key with --prefix");
        }
        Ok(Exit::Ok)
    }
}

/// Prints the keys with the most suppressed starts.
pub(super) async fn top(most: Most, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let (keys, _) = place.rows::<RunKey>(Call::get("/keys/top"), None, most.rows()).await?;
    print(global, &keys, place.now())?;
    Ok(Exit::Ok)
}

/// Prints starts whose key was used with another input.
pub(super) async fn conflicts(most: Most, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let call = Call::get("/keys/conflicts");
    let (rows, _) = place.rows::<KeyConflict>(call, None, most.rows()).await?;
    let table = |rows: &[KeyConflict]| {
        let mut table = Table::new(["WHEN", "WORKFLOW", "KEY", "FROM", "RUN"]);
        for it in rows {
            table.row([
                text::moment(it.at, place.now()).into(),
                text::cut(&it.workflow, NAME_CHARS).into(),
                text::cut(&it.key, NAME_CHARS).into(),
                text::cut(&it.caller, NAME_CHARS).into(),
                it.run.to_string().into(),
            ]);
        }
        table
    };
    output::print_rows(global.output, &rows, table, |it| it.run.to_string())?;
    Ok(Exit::Ok)
}

fn print(global: &Global, keys: &[RunKey], now: Timestamp) -> Result<(), Problem> {
    let table = |rows: &[RunKey]| {
        let mut table =
            Table::new(["WORKFLOW", "KEY", "STATE", "DUPLICATES", "CONFLICTS", "AGE", "RUN"]);
        for it in rows {
            table.row([
                text::cut(&it.workflow, NAME_CHARS).into(),
                text::cut(&it.key, NAME_CHARS).into(),
                it.state.into(),
                it.duplicates.to_string().into(),
                it.conflicts.to_string().into(),
                text::duration(now.since(it.created_at)).into(),
                it.run.to_string().into(),
            ]);
        }
        table
    };
    output::print_rows(global.output, keys, table, |it| it.run.to_string())
}
