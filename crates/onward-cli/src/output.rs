//! What goes to stdout: runs as a table, as JSON lines, or as ids.
//!
//! Owns: the three formats. Data only; whatever is said about it goes to stderr.

use std::collections::BTreeMap;
use std::io::Write;

use clap::ValueEnum;
use onward::{Onward, Run, RunState, Timestamp, Waits};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::place::Place;
use crate::problem::Problem;
use crate::table::{Cell, Table, style_of};
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

/// What the state of a run is called that waits for an operator or another build.
pub(crate) const STUCK: &str = "stuck";

/// What the state of a run is called that is paused.
pub(crate) const PAUSED: &str = "paused";

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

/// Whether the run waits for an operator's retry, or a worker of another build.
pub(crate) fn is_stuck(run: &Run) -> bool {
    run.state == RunState::Waiting && matches!(run.waits_for, Some(Waits::Stuck { .. }))
}

/// Whether the run is paused: it goes on after a resume.
pub(crate) fn is_paused(run: &Run) -> bool {
    run.paused_at.is_some() && !run.state.is_final()
}

/// The state of a run for people, who want to tell a stuck or paused run from one that waits for a
/// time.
pub(crate) fn state_name(run: &Run) -> &'static str {
    match run.state {
        _ if is_paused(run) => PAUSED,
        _ if is_stuck(run) => STUCK,
        state => state.as_str(),
    }
}

/// The state of a run that has not ended, with how far it is.
fn state_and_progress(run: &Run) -> String {
    let percent = run.progress().and_then(|progress| progress.percent());
    match percent.filter(|_| !run.state.is_final()) {
        Some(percent) => format!("{} {percent} %", state_name(run)),
        None => state_name(run).to_owned(),
    }
}

/// A text in the colour of the run's state; what is stuck needs somebody, as what failed.
pub(crate) fn state_cell(run: &Run, text: impl Into<String>) -> Cell {
    let state = if is_stuck(run) { RunState::Failed } else { run.state };
    Cell::styled(text, style_of(state))
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

/// Prints rows in the format that is asked for: a table of them, one in a JSON line, or their names.
pub(crate) fn print_rows<T: Serialize, const N: usize>(
    format: Format,
    rows: &[T],
    table: impl FnOnce(&[T]) -> Table<N>,
    id: impl Fn(&T) -> String,
) -> Result<(), Problem> {
    let mut out = stdout();
    match format {
        Format::Table if rows.is_empty() => anstream::eprintln!("none"),
        Format::Table => table(rows).write(&mut out)?,
        Format::Json => rows.iter().try_for_each(|row| write_json(&mut out, row))?,
        Format::Ids => rows.iter().try_for_each(|row| writeln!(out, "{}", text::line(&id(row))))?,
    }
    Ok(out.flush()?)
}

/// Prints runs of a list, one per line, without what lists of the place leave out.
pub(crate) fn print_list(format: Format, runs: &[Run], place: &Place) -> Result<(), Problem> {
    if format != Format::Json || place.lists_payloads() {
        return print_runs(format, runs, place.now());
    }
    let mut out = stdout();
    for run in runs {
        let text = serde_json::to_string(run)?;
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text)?;
        fields.retain(|name, _| name != "input" && name != "output");
        write_json(&mut out, &fields)?;
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
            state_cell(run, state_and_progress(run)),
            text::cut(&run.workflow, NAME_CHARS).into(),
            text::cut(run.key.as_deref().unwrap_or("-"), NAME_CHARS).into(),
            text::duration(now.since(run.created_at)).into(),
        ]);
    }
    table
}
