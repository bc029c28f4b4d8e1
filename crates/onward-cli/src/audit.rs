//! `onward audit`: who changed what through a server.
//!
//! Owns: how a row is printed. Never writes one.

use clap::{Args, Subcommand};
use onward::store::AuditRow;

use crate::args::{Global, Most};
use crate::output;
use crate::place::{Call, Place};
use crate::problem::{Exit, Problem};
use crate::table::Table;
use crate::text;

/// Characters of a target or a name in a list.
const NAME_CHARS: usize = 48;

/// Looks at who changed what
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AuditCommand {
    List(ListArgs),
}

/// Lists changes that were made through a server, newest first
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward audit list --limit 20
  onward audit list -o json --limit 1000 | jq 'select(.who == \"ada\")'

What is done to a store past every server is not in it, but for operations.")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    most: Most,
}

impl AuditCommand {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let AuditCommand::List(ListArgs { most }) = self;
        let place = Place::open(global).await?;
        let (rows, _) = place.rows::<AuditRow>(Call::get("/audit"), None, most.rows()).await?;
        output::print_rows(global.output, &rows, table, |row| row.id.to_string())?;
        Ok(Exit::Ok)
    }
}

fn table(rows: &[AuditRow]) -> Table<6> {
    let mut table = Table::new(["AT", "WHO", "ROLE", "ACTION", "TARGET", "OUTCOME"]);
    for row in rows {
        table.row([
            row.at.to_string().into(),
            text::cut(&row.who, NAME_CHARS).into(),
            row.role.as_str().into(),
            row.action.as_str().into(),
            text::cut(&row.target, NAME_CHARS).into(),
            row.outcome.as_deref().unwrap_or("not known").into(),
        ]);
    }
    table
}
