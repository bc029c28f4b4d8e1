//! `onward runs cancel`, `retry`, `pause`, `resume` and `delete`: one change to several runs. Each is
//! tried, and what is refused does not stop the others.

use std::io::{BufRead, Write};

use clap::Args;
use onward::{Run, RunId};
use serde::Serialize;

use super::many::ManyArgs;
use super::{IdArg, Ids, id};
use crate::args::Global;
use crate::output::{self, Format};
use crate::place::{Place, Verb};
use crate::problem::{Exit, Problem, print_error, print_note};
use crate::text;

pub(super) const CANCEL_EXAMPLES: &str = "\
Examples:
  onward runs cancel 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs list --state queued --tag import=7 -o ids | onward runs cancel -
  onward runs cancel --all-matching --workflow import --tag import=7 --dry-run";

pub(super) const RETRY_EXAMPLES: &str = "\
Examples:
  onward runs retry 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs list --state failed -o ids | onward runs retry -
  onward runs retry --all-matching --state failed --younger-than 1d --pace 50";

pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  onward runs pause 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs pause --all-matching --workflow index-attachment --tag tenant=acme

Timers and signals that come meanwhile are kept. Deadlines hold, and a cancel goes through.";

pub(super) const DELETE_EXAMPLES: &str = "\
Examples:
  onward runs delete 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs list --state cancelled --tag import=7 -o ids | onward runs delete -

Only runs that have ended can be deleted. This cannot be taken back. For all that ended long ago:
onward prune --older-than 30d";

pub(super) const RESUME_EXAMPLES: &str = "\
Examples:
  onward runs resume 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs resume --all-matching --state paused --yes";

/// Which runs are changed.
#[derive(Clone, Debug, Args)]
pub(crate) struct SteerArgs {
    #[command(flatten)]
    ids: Ids,
    #[command(flatten)]
    many: ManyArgs,
}

impl SteerArgs {
    pub(super) async fn execute(self, verb: Verb, global: &Global) -> Result<Exit, Problem> {
        if self.many.all_matching {
            return self.many.execute(verb, global).await;
        }
        if self.many.has_filter() {
            let why = "flags that say what runs are like need --all-matching, and no ids";
            return Err(Problem::Usage(why.to_owned()));
        }
        if self.ids.ids.is_empty() {
            let why = "name the runs by their ids, - for ids from stdin, or with --all-matching";
            return Err(Problem::Usage(why.to_owned()));
        }
        each(self.ids, global, verb).await
    }
}

/// Which runs are deleted.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    ids: Ids,
}

impl DeleteArgs {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if self.ids.ids.is_empty() {
            let why = "name the runs by their ids, or - for ids from stdin";
            return Err(Problem::Usage(why.to_owned()));
        }
        each(self.ids, global, Verb::Delete).await
    }
}

/// Changes each run, and prints those that were changed as they stand then.
async fn each(ids: Ids, global: &Global, verb: Verb) -> Result<Exit, Problem> {
    let ids = ids.read()?;
    let place = Place::open(global).await?;
    change(&place, &ids, verb, global.output).await
}

/// Changes each run; one that is refused does not stop the others.
pub(crate) async fn change(
    place: &Place,
    ids: &[RunId],
    verb: Verb,
    format: Format,
) -> Result<Exit, Problem> {
    let (mut changed, mut gone) = (Vec::new(), Vec::new());
    let worst = change_each(place, ids, verb, &mut changed, &mut gone).await;
    // Also where the place went away in the middle: what was done is done.
    if !changed.is_empty() {
        output::print_runs(format, &changed, place.now())?;
    }
    print_gone(format, &gone)?;
    worst
}

async fn change_each(
    place: &Place,
    ids: &[RunId],
    verb: Verb,
    changed: &mut Vec<Run>,
    gone: &mut Vec<RunId>,
) -> Result<Exit, Problem> {
    let mut worst = Exit::Ok;
    for id in ids {
        match place.steer(verb, *id).await {
            Ok(Some(run)) => {
                changed.push(run);
                say_when(place, verb, *id).await?;
            }
            Ok(None) => gone.push(*id),
            Err(problem) => worst = worst.max(refuse(problem)?),
        }
    }
    Ok(worst)
}

/// Says of a run that is in a worker's hands when it ends, or when it is paused.
async fn say_when(place: &Place, verb: Verb, id: RunId) -> Result<(), Problem> {
    if !matches!(verb, Verb::Cancel | Verb::Pause) {
        return Ok(());
    }
    let why = place.see(id).await?.why;
    if !["ended", "paused"].contains(&why.code.as_str()) {
        print_note(&format!("run {id}: {}", text::line(&why.sentence)));
    }
    Ok(())
}

/// A deleted run as it is printed with `-o json`.
#[derive(Serialize)]
struct Gone {
    id: RunId,
    deleted: bool,
}

fn print_gone(format: Format, gone: &[RunId]) -> Result<(), Problem> {
    let mut out = output::stdout();
    for id in gone {
        match format {
            Format::Table => writeln!(out, "deleted {id}")?,
            Format::Json => output::print_json(&Gone { id: *id, deleted: true })?,
            Format::Ids => writeln!(out, "{id}")?,
        }
    }
    Ok(out.flush()?)
}

/// Says why a change was refused; a store that does not answer ends the command.
pub(crate) fn refuse(problem: Problem) -> Result<Exit, Problem> {
    match problem.exit() {
        Exit::Unavailable => Err(problem),
        exit => {
            print_error(&problem);
            Ok(exit)
        }
    }
}

impl Ids {
    /// The ids, those from stdin in the place of the dash.
    pub(crate) fn read(self) -> Result<Vec<RunId>, Problem> {
        let mut ids = Vec::new();
        for arg in self.ids {
            match arg {
                IdArg::Id(id) => ids.push(id),
                IdArg::Stdin => ids.append(&mut read_lines(std::io::stdin().lock())?),
            }
        }
        Ok(ids)
    }
}

fn read_lines(lines: impl BufRead) -> Result<Vec<RunId>, Problem> {
    let mut ids = Vec::new();
    for (place, line) in lines.lines().enumerate() {
        let line = line.map_err(Problem::io("cannot read ids from stdin"))?;
        let text = line.trim();
        if !text.is_empty() {
            let id = id(text).map_err(|why| {
                Problem::Usage(format!("stdin, line {}: {text:?}: {why}", place + 1))
            })?;
            ids.push(id);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_line_by_line_and_a_bad_one_is_named() {
        let good =
            "01890a5d-ac96-774b-bcce-b302099a8057\n\n 01890a5d-ac96-774b-bcce-b302099a8058 \n";
        assert_eq!(read_lines(good.as_bytes()).unwrap().len(), 2);
        let error = read_lines("\nnope\n".as_bytes()).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
