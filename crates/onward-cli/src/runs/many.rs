//! One change to every run that a filter fits: shows how many first, asks, then goes through them.
//!
//! Owns: the flags of that, the question, and the summary. Which runs allow it is the library's.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use onward::{Filter, Onward, SteerMany, Steered};
use serde::Serialize;

use super::filter::{FilterArgs, Wanted};
use crate::args::Global;
use crate::ops::NewOperation;
use crate::output::{self, Format};
use crate::place::{Place, Verb};
use crate::problem::{Exit, Problem, print_error};
use crate::progress::Progress;
use crate::text;

/// The runs that fit, instead of ids.
#[derive(Clone, Debug, Args)]
pub(super) struct ManyArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Every run that fits the flags above
    #[arg(long, conflicts_with = "ids")]
    pub(super) all_matching: bool,
    /// Does not ask; needed where there is no terminal to ask on
    #[arg(long, short, requires = "all_matching")]
    yes: bool,
    /// Counts only
    #[arg(long, requires = "all_matching")]
    dry_run: bool,
    /// At most so many runs a second
    #[arg(long, value_name = "RUNS", requires = "all_matching")]
    pace: Option<u32>,
}

/// A change to many runs as it is printed with `-o json`.
#[derive(Serialize)]
struct Summary<'a> {
    verb: &'static str,
    dry_run: bool,
    matched: u64,
    done: u64,
    skipped: &'a std::collections::BTreeMap<&'static str, u64>,
    failed: u64,
}

impl ManyArgs {
    /// Whether a flag is given that means nothing beside ids.
    pub(super) fn has_filter(&self) -> bool {
        let is_how = self.yes || self.dry_run || self.pace.is_some();
        is_how || !self.filter.is_empty()
    }

    pub(super) async fn execute(self, verb: Verb, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            let why = "--all-matching counts runs; list their ids with 'onward runs list -o ids'";
            return Err(Problem::Usage(why.to_owned()));
        }
        let place = Place::open(global).await?;
        let Place::Store(onward) = &place else {
            return self.operate(verb, &place, global).await;
        };
        let (filter, wanted) = self.filter.read(place.now());
        let would = steer(onward, verb, filter.clone(), wanted.clone())?.dry_run().await?;
        if self.dry_run || would.done == 0 {
            print(global, verb, &would, self.dry_run)?;
            return Ok(Exit::Ok);
        }
        if !self.yes && !agreed(verb, &would)? {
            return Ok(Exit::No);
        }
        let mut progress = Progress::counted(would.matched);
        progress.name(verb.name());
        let steer = steer(onward, verb, filter, wanted)?.pace(self.pace.unwrap_or(0));
        let steered = steer.on_progress(move |so_far| {
            let seen = so_far.done + so_far.skipped_total() + so_far.failed;
            progress.set(seen, said(verb, so_far, false));
        });
        let steered = steered.await?;
        print(global, verb, &steered, false)?;
        for failure in &steered.failures {
            print_error(&failure.error);
        }
        Ok(if steered.failed == 0 { Exit::Ok } else { Exit::No })
    }
}

impl ManyArgs {
    /// Has a server do it, as an operation of its own, and waits for its end.
    async fn operate(self, verb: Verb, place: &Place, global: &Global) -> Result<Exit, Problem> {
        let (filter, wanted) = self.filter.read(place.now());
        let operation = NewOperation::of_filter(verb, filter, &wanted).pace(self.pace);
        let would = operation.matched(place).await?;
        if self.dry_run || would.matched == 0 {
            return would.print(verb, global.output);
        }
        if !self.yes && !asked(verb, would.matched, &would.said(verb))? {
            return Ok(Exit::No);
        }
        let begun = operation.begin(place).await?;
        begun.follow(place, global.output).await
    }
}

fn steer(
    onward: &Onward,
    verb: Verb,
    filter: Filter,
    wanted: Wanted,
) -> Result<SteerMany, Problem> {
    let matching = onward.matching(filter).only(move |run| wanted.has(run));
    match verb {
        Verb::Cancel => Ok(matching.cancel()),
        Verb::Retry => Ok(matching.retry()),
        Verb::Pause => Ok(matching.pause()),
        Verb::Resume => Ok(matching.resume()),
        Verb::Delete => Err(Problem::Usage("runs are deleted by their ids".to_owned())),
    }
}

fn agreed(verb: Verb, would: &Steered) -> Result<bool, Problem> {
    asked(verb, would.done, &said(verb, would, true))
}

/// Asks on a terminal, and says so where the answer is no; elsewhere nobody can, so the flag is needed.
pub(crate) fn asked(verb: Verb, runs: u64, would: &str) -> Result<bool, Problem> {
    let runs = text::count(runs, "run");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let why = format!("this would {} {runs}; add --yes to do it", verb.name());
        return Err(Problem::Usage(why));
    }
    anstream::eprintln!("{would}");
    anstream::eprint!("{} {runs}? [y/N] ", verb.name());
    std::io::stderr().flush()?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(Problem::io("cannot read the answer"))?;
    let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
    if !agreed {
        anstream::eprintln!("nothing was changed");
    }
    Ok(agreed)
}

fn print(global: &Global, verb: Verb, steered: &Steered, dry_run: bool) -> Result<(), Problem> {
    match global.output {
        Format::Json => output::print_json(&Summary {
            verb: verb.name(),
            dry_run,
            matched: steered.matched,
            done: steered.done,
            skipped: &steered.skipped,
            failed: steered.failed,
        }),
        _ => Ok(writeln!(output::stdout(), "{}", said(verb, steered, dry_run))?),
    }
}

/// What was done, or would be, in a sentence.
fn said(verb: Verb, steered: &Steered, would: bool) -> String {
    let verb = match would {
        true => format!("would {}", verb.name()),
        false => verb.past().to_owned(),
    };
    let runs = text::count(steered.matched, "matching run");
    let mut said = format!("{verb} {} of {runs}", steered.done);
    if !steered.skipped.is_empty() {
        let why = steered.skipped.iter().map(|(why, count)| format!("{why}: {count}"));
        let why = why.collect::<Vec<_>>().join(", ");
        said.push_str(&format!("; skipped {} ({why})", steered.skipped_total()));
    }
    if steered.failed > 0 {
        said.push_str(&format!("; {} failed", steered.failed));
    }
    said
}
