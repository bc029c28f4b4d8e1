//! `onward runs watch`: the steps of a run as they are recorded.
//!
//! Owns: following one run to its end, and the run that goes on with its work. Each record is one
//! line on stdout; on a terminal a line below it says what the run does just now, and elsewhere stderr does
//! when that changes.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use onward::{Record, Run, RunId, RunProgress, RunState, Timestamp};
use serde::Serialize;

use super::show::record_row;
use crate::args::Global;
use crate::output::{self, Format};
use crate::place::{Place, Reason, Seen};
use crate::problem::{Exit, Problem};
use crate::table::{BOLD, Cell, DIM, Table};
use crate::text;

/// How often the run is read when nothing says that it changed, as from another process.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Widths of time, step, try and duration: rows come one by one and should still line up.
const WIDTHS_MIN: [usize; 5] = [12, 16, 1, 5, 0];

/// How often the line at the bottom moves.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// Follows a run until it ends; exits with 1 if it does not complete
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchArgs {
    /// The run's id
    #[arg(value_parser = super::id)]
    id: RunId,
}

impl WatchArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let mut watch = Watch::new(&place, self.id, global.output);
        let run = watch.follow().await?;
        watch.print_end(&run)?;
        Ok(if run.state == RunState::Completed { Exit::Ok } else { Exit::No })
    }
}

struct Watch<'a> {
    place: &'a Place,
    id: RunId,
    format: Format,
    /// The last record that was shown.
    seen: Option<u64>,
    /// What the run does just now. Hidden where stderr is no terminal.
    now_line: ProgressBar,
    /// What was last said of that where there is no terminal.
    said: Option<(Reason, Option<RunProgress>)>,
}

/// A record as it is printed with `-o json`.
#[derive(Serialize)]
struct Line<'a> {
    run: RunId,
    record: &'a Record,
}

impl<'a> Watch<'a> {
    fn new(place: &'a Place, id: RunId, format: Format) -> Self {
        let now_line = ProgressBar::new_spinner();
        if !now_line.is_hidden() {
            now_line.enable_steady_tick(TICK_EVERY);
        }
        Self { place, id, format, seen: None, now_line, said: None }
    }

    /// Shows every new record until the run has ended; gives the run as it stands then.
    async fn follow(&mut self) -> Result<Run, Problem> {
        loop {
            let changed = self.place.changed(self.id, LOOK_EVERY);
            // The run is read first, so that one that has ended has no record after this look.
            let Seen { run, why, .. } = self.place.see(self.id).await?;
            self.print_new().await?;
            match run.continued_as {
                Some(next) => self.go_on_with(next),
                None if run.state.is_final() => return Ok(run),
                None => {
                    self.say(why, run.progress());
                    changed.await;
                }
            }
        }
    }

    /// Says what the run does just now; without a terminal, only when that is news.
    fn say(&mut self, why: Reason, progress: Option<RunProgress>) {
        let far = progress.map_or(String::new(), |progress| format!(" Progress: {progress}."));
        let sentence = text::line(&format!("{}{far}", why.sentence));
        if self.now_line.is_hidden() {
            let same = |(said, far): &(Reason, _)| said.is_as(&why) && *far == progress;
            if !self.said.as_ref().is_some_and(same) {
                anstream::eprintln!("{sentence}");
                self.said = Some((why, progress));
            }
        }
        self.now_line.set_message(sentence);
    }

    fn go_on_with(&mut self, next: RunId) {
        self.now_line.suspend(|| anstream::eprintln!("the run goes on as {next}"));
        self.id = next;
        self.seen = None;
        self.said = None;
    }

    async fn print_new(&mut self) -> Result<(), Problem> {
        loop {
            let (records, more) = self.place.history(self.id, self.seen).await?;
            for record in &records {
                self.now_line.suspend(|| print_record(self.format, self.id, record))?;
                self.seen = Some(record.seq);
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn print_end(&self, run: &Run) -> Result<(), Problem> {
        self.now_line.finish_and_clear();
        match self.format {
            Format::Json => output::print_json(run),
            Format::Ids => {
                output::print_runs(Format::Ids, std::slice::from_ref(run), run.created_at)
            }
            Format::Table => {
                let mut out = output::stdout();
                let mut table = Table::new(["", "", ""]);
                let took = run.finished_at.unwrap_or(run.created_at).since(run.created_at);
                let outcome = match (&run.output, &run.failure) {
                    (_, Some(failure)) => text::line(&failure.to_string()),
                    (Some(output), None) => text::payload(output),
                    (None, None) => String::new(),
                };
                let took = format!("after {}", text::duration(took));
                table.row([run.state.into(), took.into(), Cell::styled(outcome, BOLD)]);
                table.write(&mut out)?;
                Ok(out.flush()?)
            }
        }
    }
}

fn print_record(format: Format, run: RunId, record: &Record) -> Result<(), Problem> {
    match format {
        Format::Json => output::print_json(&Line { run, record }),
        Format::Ids => Ok(()),
        Format::Table => {
            let mut out = output::stdout();
            let [step, number, _, took, result] = record_row(record);
            let mut table = Table::new([""; 5]).at_least(WIDTHS_MIN);
            let at = Cell::styled(clock_time(record.at), DIM);
            table.row([at, step, number, took, result]);
            table.write(&mut out)?;
            Ok(out.flush()?)
        }
    }
}

/// The time of day.
fn clock_time(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('T') {
        Some((_, time)) => time.trim_end_matches('Z').to_owned(),
        None => text,
    }
}
