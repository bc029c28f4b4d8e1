//! What the demo says: before, at the end, and what to look at next.
//!
//! Owns: the words of the demo. Never judges; the check does.

use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};

use crate::check::Findings;
use crate::evidence::Evidence;
use crate::folder::{Folder, quoted};
use crate::service::OCR_FAILURES_PERCENT;
use crate::{Error, Form};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// Sentences of each kind that are printed when something went wrong.
const SENTENCES_MAX: usize = 10;

/// Says what is about to happen.
pub(crate) fn print_opening(runs: u64, seed: u64) {
    anstream::eprintln!(
        "{BOLD}Indexing {runs} attachments{BOLD:#}: find customer → ocr → update index\n\
         The OCR service fails {OCR_FAILURES_PERCENT} % of its calls (seed {seed}). Halfway, the \
         worker process is killed.\n"
    );
}

impl Findings {
    /// Prints what was found. The last line of the table is the one that matters.
    pub(crate) fn print(&self, form: Form) -> Result<(), Error> {
        let mut out = anstream::stdout().lock();
        match form {
            Form::Json => {
                let line = serde_json::to_string(self).map_err(std::io::Error::from)?;
                writeln!(out, "{line}")?;
            }
            Form::Table => self.print_table(&mut out)?,
        }
        Ok(out.flush()?)
    }

    fn print_table(&self, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out, "\n{BOLD}Counted from the store and the services' own logs{BOLD:#}")?;
        for (name, number, remark) in self.rows() {
            let gap = if remark.is_empty() { "" } else { "  " };
            writeln!(out, "  {name:<23} {number:>5}{gap}{DIM}{remark}{DIM:#}")?;
        }
        writeln!(out)?;
        for (what, sentences) in [("lost", &self.lost), ("twice", &self.recorded_twice)] {
            for sentence in sentences.iter().take(SENTENCES_MAX) {
                writeln!(out, "  {what}: {sentence}")?;
            }
        }
        let colour = if self.is_clean() { AnsiColor::Green } else { AnsiColor::Red };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        let (lost, twice) = (self.lost.len(), self.recorded_twice.len());
        Ok(writeln!(out, "{style}lost {lost}, recorded twice {twice}{style:#}")?)
    }

    fn rows(&self) -> [(&'static str, u64, String); 6] {
        let indexed = self.completed - self.skipped;
        let of = format!("of {}: {indexed} indexed, {} skipped", self.attachments, self.skipped);
        let before = format!("{} of them before the kill", self.steps_at_kill);
        let failed = format!("{} failed and were tried again", self.ocr_failed);
        let again = "work done, but not recorded at the kill";
        let absorbed = "by the search service, which knows the step id";
        [
            ("runs completed", self.completed, of),
            ("steps recorded", self.steps, before),
            ("OCR calls", self.ocr_calls, failed),
            ("steps that ran again", self.ran_again, again.to_owned()),
            ("repeated calls ignored", self.absorbed, absorbed.to_owned()),
            ("documents in the index", self.documents, String::new()),
        ]
    }
}

/// Says how to look at it, and what is left on disk.
pub(crate) fn print_next(folder: &Folder, evidence: &Evidence, command: &str) {
    let (store, path) = (quoted(Path::new(&folder.store_url())), quoted(folder.path()));
    anstream::eprintln!("\n{BOLD}See it in the dashboard{BOLD:#}");
    anstream::eprintln!("  {command} dev --open --store {store}");
    // The run that both workers had a hand in has the most to show.
    let telling = evidence.runs.iter().max_by_key(|(run, history)| (run.attempt, history.len()));
    if let Some((run, _)) = telling.filter(|(run, _)| run.attempt > 1) {
        anstream::eprintln!("  {DIM}run {} was interrupted by the kill{DIM:#}", run.id);
    }
    anstream::eprintln!(
        "The database and logs are left in {path} for that. To delete them: rm -r {path}"
    );
}

/// Says what is left on disk of a demo that did not end.
pub(crate) fn print_left(folder: &Folder) {
    let path = quoted(folder.path());
    anstream::eprintln!(
        "The database and logs are left in {path} to find the cause in. To delete them: rm -r {path}"
    );
}
