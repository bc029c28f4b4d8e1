//! What the demo says: before, at the end, and what to look at next.
//!
//! Owns: the words of the demo. Never judges; the check does.

use std::io::Write;
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};

use super::Folder;
use super::check::Findings;
use super::evidence::Evidence;
use super::service::OCR_FAILURES_PERCENT;
use crate::output;
use crate::problem::Problem;
use crate::table::{BOLD, Cell, DIM, Table};

/// Sentences of each kind that are printed when something went wrong.
const SENTENCES_MAX: usize = 10;

/// Says what is about to happen.
pub(super) fn print_opening(runs: u64, seed: u64) {
    anstream::eprintln!(
        "{BOLD}Indexing {runs} attachments{BOLD:#}: find customer → ocr → update index\n\
         The OCR service fails {OCR_FAILURES_PERCENT} % of its calls (seed {seed}). Halfway, the \
         worker process is\nkilled with SIGKILL and another is started. Nothing else is done \
         about it.\n"
    );
}

impl Findings {
    /// Prints what happened. The last line is the one that matters.
    pub(super) fn print(&self) -> Result<(), Problem> {
        let mut out = output::stdout();
        writeln!(
            out,
            "\n{BOLD}What happened{BOLD:#}, counted from the store and the services' logs"
        )?;
        self.table().write(&mut out)?;
        writeln!(out)?;
        for (what, sentences) in [("lost", &self.lost), ("twice", &self.recorded_twice)] {
            for sentence in sentences.iter().take(SENTENCES_MAX) {
                writeln!(out, "  {what}: {sentence}")?;
            }
        }
        let colour = if self.is_clean() { AnsiColor::Green } else { AnsiColor::Red };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        let (lost, twice) = (self.lost.len(), self.recorded_twice.len());
        writeln!(out, "{style}lost {lost}, recorded twice {twice}{style:#}")?;
        Ok(out.flush()?)
    }

    fn table(&self) -> Table<3> {
        let indexed = self.completed - self.skipped;
        let rows = [
            (
                "runs completed",
                self.completed,
                format!("of {}: {indexed} indexed, {} skipped", self.attachments, self.skipped),
            ),
            (
                "steps recorded",
                self.steps,
                format!("{} of them when the worker was killed", self.steps_at_kill),
            ),
            ("OCR calls", self.ocr_calls, format!("{} of them failed", self.ocr_failed)),
            ("failed tries recorded", self.tries_failed, "each was tried again".to_owned()),
            (
                "bodies that ran again",
                self.ran_again,
                "the kill fell between effect and record".to_owned(),
            ),
            (
                "duplicates absorbed",
                self.absorbed,
                "by the search service, on the step's id".to_owned(),
            ),
            ("documents in the index", self.documents, String::new()),
        ];
        let mut table = Table::new(["", "", ""]);
        for (name, number, remark) in rows {
            let number = format!("{number:>6}");
            table.row([format!("  {name}").into(), number.into(), Cell::styled(remark, DIM)]);
        }
        table
    }
}

/// Says where everything is, and what to look at next.
pub(super) fn print_next(folder: &Folder, evidence: &Evidence) {
    let program = program();
    let program = program.display();
    let store = folder.store_url();
    let logs = folder.path().display();
    // The run that both workers had a hand in has the most to show.
    let telling = evidence.runs.iter().max_by_key(|(run, history)| (run.attempt, history.len()));
    anstream::eprintln!("\n{BOLD}Look next{BOLD:#}");
    anstream::eprintln!("  {program} --store {store} runs list");
    if let Some((run, _)) = telling {
        anstream::eprintln!("  {program} --store {store} runs show {}", run.id);
    }
    anstream::eprintln!("  {logs}/*.log  {DIM}what the services and workers saw{DIM:#}");
    anstream::eprintln!("  examples/index_attachment.rs  {DIM}such a workflow in full{DIM:#}");
    anstream::eprintln!("  ./scripts/test  {DIM}everything else that must hold{DIM:#}");
    anstream::eprintln!("The folder {logs} is left in place; delete it when you like.");
}

/// This program, as it can be typed.
fn program() -> PathBuf {
    let typed = std::env::args_os().next().map(PathBuf::from);
    typed.unwrap_or_else(|| Path::new("onward").to_owned())
}
