//! `onward keys`: which run has a key, and what was suppressed because of it.

use std::io::Write;

use clap::Subcommand;
use onward::{Duplicates, Run, Timestamp, Workflow};
use serde::Serialize;
use serde_json::Value;

use crate::args::Global;
use crate::output::{self, Format};
use crate::problem::{Exit, Problem};
use crate::table::Table;
use crate::{open, text};

/// Looks at keys
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Shows the run that has a key, and the starts that the key suppressed
    #[command(after_help = "Example:\n  onward keys show index-attachment attachment-7")]
    Show {
        /// The workflow
        workflow: String,
        /// The key
        key: String,
    },
}

/// A key as it is printed with `-o json`.
#[derive(Serialize)]
struct Shown<'a> {
    workflow: &'a str,
    key: &'a str,
    run: &'a Run,
    duplicates: &'a Duplicates,
}

impl KeysCommand {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let KeysCommand::Show { workflow, key } = self;
        let onward = open::existing(&global.store).await?;
        let wanted = Workflow::<Value, Value>::of_name(workflow.as_str());
        let handle = onward.by_key(wanted, key.as_str()).await?;
        let (run, duplicates) = (handle.status().await?, handle.duplicates().await?);
        let now = output::now(&onward);
        match global.output {
            Format::Table => {
                output::print_runs(Format::Table, &[run], now)?;
                write_duplicates(&mut output::stdout(), &duplicates, now)?;
            }
            Format::Json => {
                let shown =
                    Shown { workflow: &workflow, key: &key, run: &run, duplicates: &duplicates };
                output::print_json(&shown)?;
            }
            Format::Ids => output::print_runs(Format::Ids, &[run], now)?,
        }
        Ok(Exit::Ok)
    }
}

/// Writes the starts that a key suppressed, newest first.
pub(crate) fn write_duplicates(
    out: &mut dyn Write,
    duplicates: &Duplicates,
    now: Timestamp,
) -> Result<(), Problem> {
    if duplicates.count == 0 {
        return Ok(writeln!(out, "\nno start with this key was suppressed")?);
    }
    writeln!(out, "\n{} suppressed", text::count(duplicates.count, "duplicate start"))?;
    let mut table = Table::new(["WHEN", "FROM", "INPUT"]);
    for duplicate in &duplicates.latest {
        let input = if duplicate.same_input { "the same" } else { "another" };
        let caller = text::line(&duplicate.caller);
        table.row([text::moment(duplicate.at, now).into(), caller.into(), input.into()]);
    }
    Ok(table.write(out)?)
}
