//! `onward errors`: what failed, by what it has in common; and retrying all that failed alike.
//!
//! Owns: how a group is printed, and which runs are of one. The API makes the groups.

use std::time::Duration;

use clap::{Args, Subcommand};
use onward::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::args::{self, Global};
use crate::output;
use crate::place::{Call, Place, Verb};
use crate::problem::{Exit, Problem, print_note};
use crate::runs::{many, steer};
use crate::table::Table;
use crate::text;
use crate::workflows::{Sampled, say_sample};

/// Characters of a message or a name in a list.
const NAME_CHARS: usize = 48;

/// Failed runs that are looked through for those of a group: as many as the groups are made from.
const RUNS_MAX: usize = 2_000;

/// Looks at failures by kind, and retries what failed alike
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ErrorsCommand {
    List(ListArgs),
    Retry(RetryArgs),
}

/// Lists failures of the newest failed runs, those that failed alike in one line
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  onward errors list --younger-than 1d")]
pub(crate) struct ListArgs {
    /// Only runs that failed less than this long ago
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    younger_than: Option<Duration>,
}

/// Retries every run of a group: each goes on from the step that failed
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  onward errors retry 1f3a9c5be07d2e44 --yes

Groups have no end: what failed alike since the list was printed is retried too. Looked through are
the newest 2,000 failed runs, and it says where there are more.")]
pub(crate) struct RetryArgs {
    /// The groups, as 'onward errors list' names them
    #[arg(required = true, value_name = "FINGERPRINT")]
    fingerprints: Vec<String>,
    /// Does not ask; needed where there is no terminal to ask on
    #[arg(long, short)]
    yes: bool,
}

/// Runs that failed alike.
#[derive(Deserialize, Serialize)]
struct Group {
    fingerprint: String,
    workflow: String,
    code: String,
    message: String,
    count: u64,
    first_at: Timestamp,
    last_at: Timestamp,
    sample_run: RunId,
}

/// A failed run in a list, as far as it matters here.
#[derive(Deserialize)]
struct Row {
    id: RunId,
    failure: Option<Failed>,
}

#[derive(Deserialize)]
struct Failed {
    fingerprint: String,
}

impl ErrorsCommand {
    /// Whether doing it again changes nothing.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self, ErrorsCommand::List(_))
    }

    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        match self {
            ErrorsCommand::List(list) => {
                let window = list.younger_than.map(|age| age.as_millis());
                let call = Call::get("/errors").query_if("window_ms", window);
                let found: Sampled<Group> = place.ask(&call).await?;
                let table = |rows: &[Group]| table(rows, place.now());
                let name = |it: &Group| it.fingerprint.clone();
                output::print_rows(global.output, &found.items, table, name)?;
                say_sample(found.sample, "failed run");
                Ok(Exit::Ok)
            }
            ErrorsCommand::Retry(retry) => retry.execute(&place, global).await,
        }
    }
}

impl RetryArgs {
    async fn execute(self, place: &Place, global: &Global) -> Result<Exit, Problem> {
        let ids = of_groups(place, &self.fingerprints).await?;
        if ids.is_empty() {
            return Err(Problem::NotThere(format!(
                "no failed run is of {}. The groups that there are: onward errors list",
                self.fingerprints.join(", ")
            )));
        }
        let runs = ids.len() as u64;
        let would = format!("would retry {}", text::count(runs, "failed run"));
        if !self.yes && !many::asked(Verb::Retry, runs, &would)? {
            return Ok(Exit::No);
        }
        steer::change(place, &ids, Verb::Retry, global.output).await
    }
}

/// The failed runs of these groups, among the newest; says where there were more.
async fn of_groups(place: &Place, fingerprints: &[String]) -> Result<Vec<RunId>, Problem> {
    let call = Call::get("/runs").query("state", "failed");
    let (rows, more) = place.rows::<Row>(call, None, RUNS_MAX).await?;
    if more.is_some() {
        print_note(&format!(
            "only the newest {RUNS_MAX} failed runs were looked at; for older ones retry by a filter: \
             onward runs retry --all-matching --state failed"
        ));
    }
    let of_them = |failure: &Failed| fingerprints.contains(&failure.fingerprint);
    let failed = rows.iter().filter(|row| row.failure.as_ref().is_some_and(of_them));
    Ok(failed.map(|row| row.id).collect())
}

fn table(rows: &[Group], now: Timestamp) -> Table<6> {
    let mut table = Table::new(["FINGERPRINT", "RUNS", "WORKFLOW", "CODE", "LAST", "MESSAGE"]);
    for it in rows {
        table.row([
            it.fingerprint.as_str().into(),
            it.count.to_string().into(),
            text::cut(&it.workflow, NAME_CHARS).into(),
            text::cut(&it.code, NAME_CHARS).into(),
            format!("{} ago", text::duration(now.since(it.last_at))).into(),
            text::cut(&it.message, NAME_CHARS).into(),
        ]);
    }
    table
}
