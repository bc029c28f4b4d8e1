//! `onward copy`: every run and schedule of a store into another, for when the first is outgrown.
//!
//! Owns: the interrupt, and what is said about the copy. The library refuses, copies, compares and
//! counts.

use std::io::Write;

use clap::Args;
use onward::{Copied, CopyProgress, Onward, RunState};
use serde::Serialize;

use crate::args::Global;
use crate::output::{self, Format};
use crate::problem::{Exit, Problem, print_error, print_note};
use crate::progress::Progress;
use crate::{open, text};

/// Copies every run and every schedule of a store into another
///
/// Takes along all that belongs to a run: its input, output and tags, its history with voided
/// records, its attempts, its key with what it suppressed, and what it waits for. The source is
/// not changed, and neither is what is in the destination.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward copy --from sqlite:onward.db --to postgres://app@db/shop --dry-run
  onward copy --from sqlite:onward.db --to postgres://app@db/shop

How to move: stop every worker and every program that starts, cancels or retries runs, on both
stores. Copy. Start them again on the destination, and never again on the source: whatever still
goes on there is not in the copy, and its steps may be executed twice.

A live worker of either store refuses the copy. A run that a dead worker held is copied as the next
sweep would leave it: queued. Callers cannot be seen: a run that is started while the copy goes on
is taken along, and other changes stop it where it sees them, but nobody can see a start that comes
after its last look.

It can be interrupted: the same command goes on, and passes over what is there and the same. A run
or a schedule that is there and differs, or a run whose key another run has there, stops it and is
named; then copy into an empty store. Each batch is one transaction, so no run is ever there in part.

At the end every run is read from the source again and compared with the destination, whole, and
the source is counted once more. Only then does it say that nothing is lost.

Exit codes: 0 copied and compared, 1 refused or interrupted, 2 usage, 4 a store cannot be used.")]
pub(crate) struct CopyArgs {
    /// The store to copy, which stays as it is: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL")]
    from: String,
    /// The store to copy into; a file or a schema is created where there is none
    #[arg(long, value_name = "URL")]
    to: String,
    /// Counts and compares only, and creates nothing
    #[arg(long)]
    dry_run: bool,
}

/// A copy as it is printed with `-o json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    copied: &'a Copied,
    dry_run: bool,
}

impl CopyArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        self.check(global)?;
        let from = open::existing_at(&self.from, "--from sqlite:PATH").await?;
        let to = match self.dry_run {
            true => open::existing_or_empty(&self.to).await?,
            false => open::created_aloud(&self.to).await?,
        };
        tokio::select! {
            copied = self.copy(&from, &to) => self.report(&copied?, global.output),
            () = interrupted() => {
                print_error(&"interrupted; what was copied stays. Run the same command to go on.");
                Ok(Exit::No)
            }
        }
    }

    fn check(&self, global: &Global) -> Result<(), Problem> {
        let refuse = |why: &str| Err(Problem::Usage(why.to_owned()));
        if global.output == Format::Ids {
            return refuse("copy counts runs; it does not list their ids");
        }
        if global.store_is_typed {
            return refuse("copy has two stores: name them with --from and --to, not with --store");
        }
        if self.from == "memory:" || self.to == "memory:" {
            return refuse("a memory: store begins and ends with this command");
        }
        if open::is_same(&self.from, &self.to) {
            return refuse("--from and --to are the same store");
        }
        Ok(())
    }

    async fn copy(&self, from: &Onward, to: &Onward) -> Result<Copied, Problem> {
        let first = if self.dry_run { "counting" } else { "copying" };
        let mut shown = Shown { progress: None, first, pass: 0 };
        let copy = from.copy_to(to).on_progress(move |at| shown.show(at));
        Ok(if self.dry_run { copy.dry_run().await? } else { copy.await? })
    }

    fn report(&self, copied: &Copied, format: Format) -> Result<Exit, Problem> {
        print_dead(copied);
        match format {
            Format::Json => output::print_json(&Report { copied, dry_run: self.dry_run })?,
            _ => self.print(copied)?,
        }
        if copied.verified {
            print_note(&"start workers and callers on the destination, never again on the source");
        }
        Ok(Exit::Ok)
    }

    fn print(&self, copied: &Copied) -> Result<(), Problem> {
        let mut out = output::stdout();
        let verb = if self.dry_run { "would copy" } else { "copied" };
        let Copied { existing, records, keys, duplicates, bytes, .. } = *copied;
        writeln!(out, "{verb} {}, {existing} existing", text::count(copied.copied, "run"))?;
        let state = |state| copied.runs.get(state).map(|count| format!("{count} {state}"));
        let states: Vec<_> = RunState::ALL.iter().filter_map(state).collect();
        if !states.is_empty() {
            writeln!(out, "  {}", states.join(", "))?;
        }
        let (records, keys) = (text::count(records, "record"), text::count(keys, "key"));
        let duplicates = text::count(duplicates, "suppressed start");
        writeln!(out, "  {records}, {keys}, {duplicates}, {}", text::bytes(bytes))?;
        if copied.queues > 0 {
            let queues = text::count(copied.queues, "queue");
            writeln!(out, "  {queues} with limits or paused")?;
        }
        if copied.schedules > 0 {
            writeln!(out, "  {}", text::count(copied.schedules, "schedule"))?;
        }
        if copied.verified {
            let all = text::count(copied.runs.values().sum(), "run");
            writeln!(out, "nothing lost: {all} compared, the same in both stores")?;
        }
        Ok(out.flush()?)
    }
}

/// Says which workers were taken for dead, and what became of their runs.
fn print_dead(copied: &Copied) {
    for worker in &copied.presumed_dead {
        let (id, place, until) = (worker.id, text::line(&worker.place), worker.lease_until);
        print_note(&format!(
            "worker {id} at {place} has not renewed its lease, which ended at {until}, and is \
             taken for dead. If it was only stopped, end it: it would go on in the source."
        ));
    }
    if copied.taken_back > 0 {
        let runs = text::count(copied.taken_back, "run");
        print_note(&format!("{runs} of dead workers: in the destination as a sweep leaves them"));
    }
}

/// The bar, which begins with the first batch, when the total is known.
struct Shown {
    progress: Option<Progress>,
    /// What the first pass is called.
    first: &'static str,
    pass: u32,
}

impl Shown {
    fn show(&mut self, at: CopyProgress) {
        let progress = self.progress.get_or_insert_with(|| Progress::counted(at.total));
        if self.pass != at.pass {
            self.pass = at.pass;
            progress.name(if at.pass == 1 { self.first } else { "comparing" });
        }
        progress.set(at.runs, format!("{}, run {}", text::bytes(at.bytes), at.runs));
    }
}

/// Resolves at Ctrl-C. A batch under way is then there or not, as a whole.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
