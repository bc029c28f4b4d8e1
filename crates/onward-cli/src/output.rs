//! What goes to stdout: runs as a table, as JSON lines, or as ids.
//!
//! Owns: the three formats. Data only; whatever is said about it goes to stderr.

use std::io::Write;

use clap::ValueEnum;
use onward::{Onward, Run, Timestamp};
use serde::Serialize;

use crate::problem::Problem;
use crate::table::Table;
use crate::text;

/// The form in which data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON object per line.
    Json,
    /// Run ids alone, one per line, for other commands.
    Ids,
}

/// Characters of a key or workflow name in a list.
const NAME_CHARS: usize = 32;

/// Stdout, without colours where nobody would see them.
pub(crate) fn stdout() -> anstream::AutoStream<std::io::StdoutLock<'static>> {
    anstream::stdout().lock()
}

/// The time by the store's clock, from which ages are counted.
pub(crate) fn now(onward: &Onward) -> Timestamp {
    onward.store().clock().now()
}

/// Prints runs, one per line.
pub(crate) fn print_runs(format: Format, runs: &[Run], now: Timestamp) -> Result<(), Problem> {
    let mut out = stdout();
    match format {
        Format::Table => runs_table(runs, now).write(&mut out)?,
        Format::Json => runs.iter().try_for_each(|run| write_json(&mut out, run))?,
        Format::Ids => runs.iter().try_for_each(|run| writeln!(out, "{}", run.id))?,
    }
    Ok(out.flush()?)
}

/// Prints one value as a JSON line.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<(), Problem> {
    let mut out = stdout();
    write_json(&mut out, value)?;
    Ok(out.flush()?)
}

fn write_json<T: Serialize>(out: &mut dyn Write, value: &T) -> Result<(), Problem> {
    serde_json::to_writer(&mut *out, value)?;
    Ok(writeln!(out)?)
}

fn runs_table(runs: &[Run], now: Timestamp) -> Table<5> {
    let mut table = Table::new(["ID", "STATE", "WORKFLOW", "KEY", "AGE"]);
    for run in runs {
        table.row([
            run.id.to_string().into(),
            run.state.into(),
            text::cut(&run.workflow, NAME_CHARS).into(),
            text::cut(run.key.as_deref().unwrap_or("-"), NAME_CHARS).into(),
            text::duration(now.since(run.created_at)).into(),
        ]);
    }
    table
}
