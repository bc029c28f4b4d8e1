//! `onward runs cancel`, `retry`, `pause` and `resume`: one change to several runs. Each is tried, and
//! what is refused does not stop the others.

use std::io::BufRead;

use clap::Args;
use onward::{Error, Json, RunHandle, RunId, Why};

use super::many::ManyArgs;
use super::{IdArg, Ids, id};
use crate::args::Global;
use crate::problem::{Exit, Problem, print_error, print_note};
use crate::{open, output, text};

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

pub(super) const RESUME_EXAMPLES: &str = "\
Examples:
  onward runs resume 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs resume --all-matching --state paused --yes";

/// What is done to runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Cancel,
    Retry,
    Pause,
    Resume,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Cancel => "cancel",
            Verb::Retry => "retry",
            Verb::Pause => "pause",
            Verb::Resume => "resume",
        }
    }

    pub(super) fn past(self) -> &'static str {
        match self {
            Verb::Cancel => "cancelled",
            Verb::Retry => "retried",
            Verb::Pause => "paused",
            Verb::Resume => "resumed",
        }
    }

    async fn change(self, run: &RunHandle<Json>) -> Result<(), Error> {
        match self {
            Verb::Cancel => run.cancel().await?,
            Verb::Retry => run.retry().await?,
            Verb::Pause => run.pause().await?,
            Verb::Resume => run.resume().await?,
        }
        self.say_when(run).await
    }

    /// Says of a run that is in a worker's hands when it ends, or when it is paused.
    async fn say_when(self, run: &RunHandle<Json>) -> Result<(), Error> {
        if !matches!(self, Verb::Cancel | Verb::Pause) {
            return Ok(());
        }
        let why = run.why().await?;
        if !matches!(why, Why::Ended { .. } | Why::Paused { .. }) {
            print_note(&format!("run {}: {}", run.id(), text::line(&why.to_string())));
        }
        Ok(())
    }
}

/// Which runs are changed.
#[derive(Debug, Args)]
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

/// Changes each run, and prints those that were changed as they stand then.
async fn each(ids: Ids, global: &Global, verb: Verb) -> Result<Exit, Problem> {
    let ids = ids.read()?;
    let onward = open::existing(&global.store).await?;
    let mut worst = Exit::Ok;
    let mut changed = Vec::new();
    for id in ids {
        let handle = onward.run(id);
        match verb.change(&handle).await {
            Ok(()) => changed.push(handle.status().await?),
            Err(error) => worst = worst.max(refuse(error)?),
        }
    }
    if !changed.is_empty() {
        output::print_runs(global.output, &changed, output::now(&onward))?;
    }
    Ok(worst)
}

/// Says why a run was refused; a store that does not answer ends the command.
fn refuse(error: onward::Error) -> Result<Exit, Problem> {
    let problem = Problem::from(error);
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
    fn read(self) -> Result<Vec<RunId>, Problem> {
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
