//! `onward runs show`: everything about one run, and why it is not running.
//!
//! Owns: what is shown of one run, and in which order. Never changes it.

use std::io::Write;

use clap::Args;
use onward::{Duplicates, Entry, Record, Run, RunId, Timestamp, Undoing};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::{Place, Seen, Untaken};
use crate::problem::{Exit, Problem, print_note};
use crate::table::{BOLD, Cell, DIM, Table, style_of};
use crate::{keys, text};

/// Steps that are named where many may be meant.
const STEPS_SHOWN_MAX: usize = 20;

/// Shows a run: its steps with tries and results, and why it is not running
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// The run's id
    #[arg(value_parser = super::id)]
    id: RunId,
}

/// A run as it is printed with `-o json`: its own fields, and what belongs to it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    run: Run,
    why: Box<RawValue>,
    #[serde(skip)]
    sentence: String,
    /// How far it has come with its undos, if it turned back.
    undoing: Option<Undoing>,
    history: Vec<Record>,
    /// What was sent and nothing has taken.
    signals_untaken: Vec<Untaken>,
    duplicates_latest: Duplicates,
}

impl ShowArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let now = place.now();
        if global.output == Format::Ids {
            output::print_runs(Format::Ids, &[place.run(self.id).await?], now)?;
            return Ok(Exit::Ok);
        }
        let Seen { run, why, duplicates } = place.see(self.id).await?;
        let history = place.whole_history(self.id).await?;
        let (signals_untaken, unread) = place.untaken(self.id).await?;
        if let Some(problem) = unread {
            print_note(&format!("signals that nothing has taken are not shown: {problem}"));
        }
        let (sentence, undoing) = (why.sentence, Undoing::of(&history));
        let (why, duplicates_latest) = (why.json, duplicates);
        let shown =
            Shown { run, why, sentence, undoing, history, signals_untaken, duplicates_latest };
        match global.output {
            Format::Json => output::print_json(&shown)?,
            _ => shown.write(&mut output::stdout(), now)?,
        }
        Ok(Exit::Ok)
    }
}

impl Shown {
    fn write(&self, out: &mut dyn Write, now: Timestamp) -> Result<(), Problem> {
        self.facts(now).write(out)?;
        if !self.history.is_empty() {
            writeln!(out)?;
            records_table(&self.history).write(out)?;
        }
        if !self.signals_untaken.is_empty() {
            writeln!(out)?;
            signals_table(&self.signals_untaken, now).write(out)?;
        }
        if self.run.key.is_some() && self.duplicates_latest.count > 0 {
            keys::write_duplicates(out, "start", &self.duplicates_latest, now)?;
        }
        Ok(out.flush()?)
    }

    fn facts(&self, now: Timestamp) -> Table<2> {
        let run = &self.run;
        let mut facts = Table::new(["", ""]);
        let mut fact = |name: &str, value: Cell| facts.row([Cell::styled(name, DIM), value]);
        fact("run", Cell::styled(run.id.to_string(), BOLD));
        fact("workflow", text::line(&run.workflow).into());
        fact("state", state_of(run));
        if !run.state.is_final() {
            fact("why", Cell::styled(text::line(&self.sentence), BOLD));
        }
        let key = |key: &String| fact("key", text::line(key).into());
        run.key.iter().for_each(key);
        fact("queue", format!("{}, priority {}", text::line(&run.queue), run.priority).into());
        if let Some(lane) = &run.lane {
            fact("lane", text::line(lane).into());
        }
        for (name, value) in &run.tags {
            fact("tag", text::line(&format!("{name}={value}")).into());
        }
        if let Some(progress) = run.progress() {
            fact("progress", progress.to_string().into());
        }
        for (name, at) in times_of(run) {
            let by = run.paused_by.as_ref().filter(|_| name == "paused");
            let by = by.map_or(String::new(), |by| text::line(&format!(", by {by}")));
            fact(name, format!("{}{by}", text::moment(at, now)).into());
        }
        for (name, other) in relatives_of(run) {
            fact(name, other.to_string().into());
        }
        if run.notes.log_lines > 0 {
            let lines = text::count(run.notes.log_lines, "line");
            fact("log", format!("{lines}; onward runs log {}", run.id).into());
        }
        if let Some(change) = &run.code_change {
            let (build, steps) = (&change.build, change.unasked.join(", "));
            let said = format!("build {build} asks no more for: {steps}");
            fact("code change", text::line(&said).into());
        }
        if let Some(undoing) = &self.undoing {
            for (name, said) in undoing_of(undoing, now) {
                fact(name, text::line(&said).into());
            }
        }
        fact("input", text::payload(&run.input).into());
        if let Some(output) = &run.output {
            fact("output", text::payload(output).into());
        }
        if let Some(failure) = &run.failure {
            fact("failure", Cell::styled(text::line(&failure.to_string()), style_of(run.state)));
        }
        facts
    }
}

fn state_of(run: &Run) -> Cell {
    let attempts = text::count(u64::from(run.attempt), "attempt");
    let took = match (run.started_at, run.finished_at) {
        (Some(started), Some(finished)) => {
            format!(" in {}", text::duration(finished.since(started)))
        }
        _ => String::new(),
    };
    output::state_cell(run, format!("{}{took}, {attempts}", output::state_name(run)))
}

fn times_of(run: &Run) -> impl Iterator<Item = (&'static str, Timestamp)> {
    let times = [
        ("created", Some(run.created_at)),
        ("due", run.due_at),
        ("started", run.started_at),
        ("finished", run.finished_at),
        ("deadline", run.deadline_at),
        ("cancel asked", run.cancel_at),
        ("paused", run.paused_at),
    ];
    times.into_iter().filter_map(|(name, at)| Some((name, at?)))
}

fn relatives_of(run: &Run) -> impl Iterator<Item = (&'static str, RunId)> {
    let relatives = [
        ("forked from", run.forked_from),
        ("continues", run.continued_from),
        ("goes on as", run.continued_as),
        ("before", run.successor),
    ];
    relatives.into_iter().filter_map(|(name, id)| Some((name, id?)))
}

/// What is undone of a run, and what is not.
fn undoing_of(undoing: &Undoing, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut said = vec![("turned back", text::moment(undoing.began_at, now))];
    for (name, steps) in [("undone", &undoing.undone), ("not undone", &undoing.left)] {
        if !steps.is_empty() {
            let first: Vec<_> = steps.iter().take(STEPS_SHOWN_MAX).map(String::as_str).collect();
            let more = match steps.len() - first.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            said.push((name, format!("{}{more}", first.join(", "))));
        }
    }
    if undoing.unreadable {
        said.push(("not undone", "not known: the record of it cannot be read here".to_owned()));
    }
    said
}

/// The records of a run: each try of each step, in order.
fn records_table(history: &[Record]) -> Table<5> {
    let mut table = Table::new(["STEP", "TRY", "ATTEMPT", "TOOK", "RESULT"]);
    for record in history {
        table.row(record_row(record));
    }
    table
}

/// The signals that nothing has taken.
fn signals_table(signals: &[Untaken], now: Timestamp) -> Table<3> {
    let mut table = Table::new(["SIGNAL, NOT TAKEN", "CAME", "VALUE"]);
    for signal in signals {
        table.row([
            text::line(&signal.name).into(),
            text::moment(signal.at, now).into(),
            text::payload(&signal.value).into(),
        ]);
    }
    table
}

/// One record as a row: step, try, attempt, duration and what came of it.
pub(super) fn record_row(record: &Record) -> [Cell; 5] {
    let (result, style) = match &record.entry {
        Entry::Done(_) if record.step == "$undo" => ("turned back".to_owned(), DIM),
        Entry::Began if record.step == "$on_cancel" => ("kept for a cancel".to_owned(), DIM),
        Entry::Done(result) => (text::payload(result), style_of(onward::RunState::Completed)),
        Entry::Failed(failure) => (
            format!("failed: {}", text::cut(&failure.to_string(), text::PAYLOAD_CHARS)),
            style_of(onward::RunState::Failed),
        ),
        Entry::TryFailed { failure, next_at } => (
            format!(
                "try failed: {}; next in {}",
                text::cut(&failure.to_string(), text::PAYLOAD_CHARS),
                text::duration(next_at.since(record.at))
            ),
            style_of(onward::RunState::Cancelled),
        ),
        Entry::Began => ("began, at most once".to_owned(), DIM),
        Entry::Fired => ("timer fired".to_owned(), DIM),
        _ => (record.entry.kind().to_string(), DIM),
    };
    // When a sleep began is not kept, only when its timer fired.
    let took = match record.entry {
        Entry::Fired => "-".to_owned(),
        _ => text::duration(record.at.since(record.began_at)),
    };
    let result = match record.voided_at {
        Some(at) => Cell::styled(format!("{result} (voided by a retry at {at})"), DIM),
        None => Cell::styled(result, style),
    };
    [
        text::line(&record.step).into(),
        record.try_number.to_string().into(),
        record.attempt.to_string().into(),
        took.into(),
        result,
    ]
}
