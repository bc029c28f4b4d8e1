//! `onward schedules backfill`.
//!
//! Owns: the range and what is said of it. Never computes a time; the library does.

use std::io::Write;
use std::time::SystemTime;

use clap::Args;
use onward::{Backfilled, Onward, Timestamp};

use crate::args::{self, Global};
use crate::output::{self, Format};
use crate::place::{Filled, Place};
use crate::problem::{Exit, Problem};
use crate::progress::Progress;
use crate::text;

/// Starts a run for each time of a range that has passed
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  onward schedules backfill nightly-report \\
    --from 2026-03-01T00:00:00Z --before 2026-03-08T00:00:00Z

A time that has its run is passed over, so that it can be interrupted and done again. The overlap
policy does not count: the runs are queued, all of them.")]
pub(crate) struct BackfillArgs {
    /// The schedule's name
    name: String,
    /// The first moment, as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    from: SystemTime,
    /// The moment before which it ends, now when left out
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    before: Option<SystemTime>,
}

impl BackfillArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            let why =
                "a backfill counts runs; list them with: onward runs list --tag schedule=NAME";
            return Err(Problem::Usage(why.to_owned()));
        }
        let place = Place::open(global).await?;
        let before = self.before.map_or(place.now(), Timestamp::from);
        let filled = match &place {
            Place::Store(onward) => self.fill(onward, before).await?,
            Place::Server(_) => self.ask(&place, before).await?,
        };
        match global.output {
            Format::Json => output::print_json(&filled)?,
            _ => {
                let started = text::count(filled.started, "run");
                let mut out = output::stdout();
                write!(out, "started {started}, {} existing", filled.existing)?;
                if filled.refused > 0 {
                    write!(out, ", {} refused: another input has the key", filled.refused)?;
                }
                writeln!(out)?;
            }
        }
        Ok(if filled.refused == 0 { Exit::Ok } else { Exit::No })
    }

    async fn fill(&self, onward: &Onward, before: Timestamp) -> Result<Filled, Problem> {
        let mut progress = Progress::share(None);
        let backfill = onward.schedule(self.name.as_str()).backfill(self.from, before);
        let filled = backfill.on_progress(move |so_far| {
            let times = so_far.started + so_far.existing + so_far.refused;
            progress.set(times, text::count(times, "time"));
        });
        let Backfilled { started, existing, refused, .. } = filled.await?;
        Ok(Filled { started, existing, refused, more: false })
    }

    /// Asks a server again until it has come to the end. What it started before is existing then.
    async fn ask(&self, place: &Place, before: Timestamp) -> Result<Filled, Problem> {
        let (mut progress, mut started) = (Progress::share(None), 0);
        loop {
            let filled = place.backfill(&self.name, self.from.into(), before).await?;
            started += filled.started;
            if !filled.more {
                let existing = (filled.existing + filled.started).saturating_sub(started);
                return Ok(Filled { started, existing, ..filled });
            }
            if filled.started == 0 {
                return Err(Problem::Usage(
                    "the server comes no further in one call: take a shorter range, from a later \
                     --from on, or the store itself with --store URL"
                        .to_owned(),
                ));
            }
            let times = filled.started + filled.existing + filled.refused;
            progress.set(times, text::count(times, "time"));
        }
    }
}
