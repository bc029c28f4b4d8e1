//! `onward doctor`: what is wrong with a store, and what to do about each thing.
//!
//! Owns: the order of the checks, and how findings are printed. Never changes anything.

mod check;
mod finding;
mod live;

use clap::Args;

use self::check::{clock, leases, schedules};
use self::finding::{Finding, write};
use self::live::{crashing, left, stuck, undo_failed, unserved};
use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::workers;

/// Checks a store or a server: schema, clock, leases, stuck runs; and says what to do
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward doctor
  onward doctor --server http://localhost:7171
  onward doctor -o json | jq -r 'select(.ok | not) | .todo // .found'

Exit codes: 0 all is well, 1 something needs somebody. No run is changed;
a SQLite file of an older version is brought up to this one.")]
pub(crate) struct DoctorArgs {}

impl DoctorArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            return Err(Problem::Usage("a finding has no id; try -o json".to_owned()));
        }
        let findings = match Place::open(global).await {
            Ok(place) => examine(&place, global).await?,
            // What was typed makes no sense: that is no finding about a store.
            Err(problem) if problem.exit() == Exit::Usage => return Err(problem),
            Err(problem) => vec![Finding::of_problem(&problem)],
        };
        match global.output {
            Format::Json => findings.iter().try_for_each(output::print_json)?,
            _ => write(&mut output::stdout(), &findings)?,
        }
        let well = findings.iter().all(|finding| finding.ok);
        Ok(if well { Exit::Ok } else { Exit::No })
    }
}

async fn examine(place: &Place, global: &Global) -> Result<Vec<Finding>, Problem> {
    let (workers, serving) = (workers::all(place).await?, workers::with_servers(place).await?);
    let mut findings = vec![check::reached(place, global)?, check::schema(place), clock(place)];
    findings.extend(check::standbys(place).await?);
    findings.extend(leases(&workers, place.now()));
    findings.extend(unserved(place, &serving).await?);
    findings.extend(left(place, &serving).await?);
    findings.extend(stuck(place).await?);
    findings.extend(crashing(place).await?);
    findings.extend(undo_failed(place).await?);
    findings.extend(schedules(place).await?);
    Ok(findings)
}
