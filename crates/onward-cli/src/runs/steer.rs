//! One change to several runs: each is tried, and what is refused does not stop the others.

use std::future::Future;
use std::io::BufRead;

use onward::{Json, RunHandle, RunId};

use super::{IdArg, Ids, id};
use crate::args::Global;
use crate::problem::{Exit, Problem, print_error};
use crate::{open, output};

pub(super) const CANCEL_EXAMPLES: &str = "\
Examples:
  onward runs cancel 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs list --state queued --tag import=7 -o ids | onward runs cancel -";

pub(super) const RETRY_EXAMPLES: &str = "\
Examples:
  onward runs retry 01890a5d-ac96-774b-bcce-b302099a8057
  onward runs list --state failed -o ids | onward runs retry -";

/// Changes each run, and prints those that were changed as they stand then.
pub(super) async fn each<F, Fut>(ids: Ids, global: &Global, change: F) -> Result<Exit, Problem>
where
    F: Fn(RunHandle<Json>) -> Fut,
    Fut: Future<Output = Result<(), onward::Error>>,
{
    let ids = ids.read()?;
    let onward = open::existing(&global.store).await?;
    let mut worst = Exit::Ok;
    let mut changed = Vec::new();
    for id in ids {
        let handle = onward.run(id);
        match change(handle.clone()).await {
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
