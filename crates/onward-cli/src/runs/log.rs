//! `onward runs log`: the lines that a run's code wrote.
//!
//! Owns: how lines are printed and followed. Never writes one.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use onward::{LogLine, RunId};

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::table::DIM;
use crate::text;

/// How often the log is read when nothing says that it changed, as from another process.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Prints the lines that a run's code wrote with ctx.log and step.log
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward runs log ID
  onward runs log ID --follow
  onward runs log ID -o json | jq -r .text

The last 1,000 lines of a run are kept. A line of a step's body names its step and try.")]
pub(crate) struct LogArgs {
    /// The run's id
    #[arg(value_parser = super::id)]
    id: RunId,
    /// Prints new lines as they come, until the run has ended
    #[arg(long, short)]
    follow: bool,
}

impl LogArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            return Err(Problem::Usage("a log has lines, and no ids".to_owned()));
        }
        let place = Place::open(global).await?;
        let mut id = self.id;
        let mut seen = 0;
        loop {
            let changed = place.changed(id, LOOK_EVERY);
            // The run is read first, so that one that has ended writes no line after this look.
            let run = place.run(id).await?;
            for line in place.log_after(id, seen).await? {
                if line.no > seen + 1 {
                    anstream::eprintln!("{} earlier are kept no more", line.no - seen - 1);
                }
                seen = line.no;
                print(global.output, &line)?;
            }
            match run.continued_as {
                Some(next) if self.follow => (id, seen) = (next, 0),
                _ if !self.follow || run.state.is_final() => return Ok(Exit::Ok),
                _ => changed.await,
            }
        }
    }
}

fn print(format: Format, line: &LogLine) -> Result<(), Problem> {
    if format == Format::Json {
        return output::print_json(line);
    }
    let mut out = output::stdout();
    let place = match (&line.step, line.try_number) {
        (Some(step), Some(number)) if number > 1 => format!("[{step}, try {number}] "),
        (Some(step), _) => format!("[{step}] "),
        (None, _) => String::new(),
    };
    let (place, said) = (text::line(&place), text::line(&line.text));
    writeln!(out, "{DIM}{}{DIM:#} {DIM}{place}{DIM:#}{said}", line.at)?;
    Ok(out.flush()?)
}
