//! `onward keys`: which run has a key, and which more starts came with it; and the keys of steps.
//!
//! Owns: the command's shape and what is printed. Never takes a key.

mod run;
mod step;

use std::io::Write;

use clap::Subcommand;
use onward::{Duplicates, Run, Timestamp};
use serde::Serialize;

use self::step::{ReleaseArgs, StepArgs, StepsArgs};
use crate::args::{Global, Most};
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::table::Table;
use crate::text;

/// Looks at keys, and releases them
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Shows the run that has a key, and the starts that came with it later
    #[command(after_help = "Example:\n  onward keys show index-attachment attachment-7")]
    Show {
        /// The workflow
        workflow: String,
        /// The key
        key: String,
    },
    List(run::ListArgs),
    /// Lists the keys with the most suppressed starts
    #[command(after_help = "Example:\n  onward keys top --limit 10")]
    Top(Most),
    /// Lists starts that were refused because their key was used with another input, newest first
    #[command(after_help = "Example:\n  onward keys conflicts")]
    Conflicts(Most),
    Steps(StepsArgs),
    Step(StepArgs),
    Release(ReleaseArgs),
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
    /// Whether doing it again changes nothing.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(
            self,
            KeysCommand::Show { .. }
                | KeysCommand::List(_)
                | KeysCommand::Top(_)
                | KeysCommand::Conflicts(_)
                | KeysCommand::Steps(_)
                | KeysCommand::Step(_)
        )
    }

    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        match self {
            KeysCommand::Show { workflow, key } => show(global, workflow, key).await,
            KeysCommand::List(list) => list.execute(global).await,
            KeysCommand::Top(most) => run::top(most, global).await,
            KeysCommand::Conflicts(most) => run::conflicts(most, global).await,
            KeysCommand::Steps(steps) => steps.execute(global).await,
            KeysCommand::Step(step) => step.execute(global).await,
            KeysCommand::Release(release) => release.execute(global).await,
        }
    }
}

async fn show(global: &Global, workflow: String, key: String) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let (run, duplicates) = place.by_key(&workflow, &key).await?;
    let now = place.now();
    match global.output {
        Format::Table => {
            output::print_runs(Format::Table, &[run], now)?;
            write_duplicates(&mut output::stdout(), "start", &duplicates, now)?;
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

/// Writes what came later with a key, newest first: `what` it is, in the singular.
pub(crate) fn write_duplicates(
    out: &mut dyn Write,
    what: &str,
    duplicates: &Duplicates,
    now: Timestamp,
) -> Result<(), Problem> {
    if duplicates.count == 0 {
        return Ok(writeln!(out, "\nno more {what}s with this key")?);
    }
    writeln!(out, "\n{}", summary(what, duplicates))?;
    let mut table = Table::new(["WHEN", "FROM", "INPUT"]);
    for duplicate in &duplicates.latest {
        let input = if duplicate.same_input { "the same" } else { "another: refused" };
        let caller = text::line(&duplicate.caller);
        table.row([text::moment(duplicate.at, now).into(), caller.into(), input.into()]);
    }
    Ok(table.write(out)?)
}

/// How many starts came with a key and what became of them, as far as each of them is kept. One
/// with the same input was given the run, unless it asked to be refused; that is not kept.
fn summary(what: &str, duplicates: &Duplicates) -> String {
    let count = text::count(duplicates.count, &format!("more {what}"));
    let (kept, latest) = (duplicates.latest.len() as u64, &duplicates.latest);
    if kept < duplicates.count {
        return format!("{count} with this key, the latest {kept}:");
    }
    let same = latest.iter().filter(|duplicate| duplicate.same_input).count() as u64;
    format!(
        "{count} with this key: {same} with the same input, {} with another and refused",
        kept - same
    )
}
