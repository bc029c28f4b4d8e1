//! `onward workflows`: what there is, and how long its steps take.
//!
//! Owns: how these are printed. Both are counted over the newest runs, and say over how many.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use onward::{RunState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::args::{self, Global};
use crate::output;
use crate::place::{Call, Place, segment};
use crate::problem::{Exit, Problem};
use crate::table::Table;
use crate::text;

/// Characters of a name in a list.
const NAME_CHARS: usize = 40;

/// Looks at workflows
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkflowsCommand {
    /// Lists workflows, counted over the newest runs
    #[command(after_help = "Example:\n  onward workflows list")]
    List,
    Steps(StepsArgs),
}

/// Shows how long the steps of a workflow take, over its newest ended runs
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  onward workflows steps index-attachment --younger-than 1d")]
pub(crate) struct StepsArgs {
    /// The workflow's name
    workflow: String,
    /// Only runs that were started less than this long ago
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    younger_than: Option<Duration>,
}

/// What was counted, and over how many runs.
#[derive(Deserialize)]
pub(crate) struct Sampled<T> {
    pub(crate) sample: u64,
    pub(crate) items: Vec<T>,
}

#[derive(Deserialize, Serialize)]
struct Workflow {
    name: String,
    runs: BTreeMap<RunState, u64>,
    served_by: u64,
    last_started_at: Option<Timestamp>,
}

#[derive(Deserialize, Serialize)]
struct Step {
    step: String,
    count: u64,
    p50_ms: u64,
    p95_ms: u64,
    p99_ms: u64,
    failures: u64,
}

impl WorkflowsCommand {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        match self {
            WorkflowsCommand::List => {
                let found: Sampled<Workflow> = place.ask(&Call::get("/workflows")).await?;
                let table = |rows: &[Workflow]| table(rows, place.now());
                output::print_rows(global.output, &found.items, table, |it| it.name.clone())?;
                say_sample(found.sample, "newest run");
            }
            WorkflowsCommand::Steps(steps) => steps.execute(&place, global).await?,
        }
        Ok(Exit::Ok)
    }
}

impl StepsArgs {
    async fn execute(self, place: &Place, global: &Global) -> Result<(), Problem> {
        let call = Call::get(format!("/workflows/{}/steps", segment(&self.workflow)));
        let call = call.query_if("window_ms", self.younger_than.map(|age| age.as_millis()));
        let found: Sampled<Step> = place.ask(&call).await?;
        output::print_rows(global.output, &found.items, steps, |it| it.step.clone())?;
        say_sample(found.sample, "ended run");
        Ok(())
    }
}

/// Says on stderr over how many runs something was counted.
pub(crate) fn say_sample(sample: u64, what: &str) {
    anstream::eprintln!("counted over {}", text::count(sample, what));
}

fn table(rows: &[Workflow], now: Timestamp) -> Table<7> {
    let heads = ["NAME", "QUEUED", "RUNNING", "WAITING", "FAILED", "WORKERS", "LAST START"];
    let mut table = Table::new(heads);
    for it in rows {
        let count = |state| it.runs.get(&state).copied().unwrap_or(0).to_string().into();
        let last = it.last_started_at.map(|at| format!("{} ago", text::duration(now.since(at))));
        table.row([
            text::cut(&it.name, NAME_CHARS).into(),
            count(RunState::Queued),
            count(RunState::Running),
            count(RunState::Waiting),
            count(RunState::Failed),
            it.served_by.to_string().into(),
            last.unwrap_or_else(|| "-".to_owned()).into(),
        ]);
    }
    table
}

fn steps(rows: &[Step]) -> Table<6> {
    let mut table = Table::new(["STEP", "COUNT", "FAILURES", "P50", "P95", "P99"]);
    for it in rows {
        let length = |ms| text::duration(Duration::from_millis(ms)).into();
        table.row([
            text::cut(&it.step, NAME_CHARS).into(),
            it.count.to_string().into(),
            it.failures.to_string().into(),
            length(it.p50_ms),
            length(it.p95_ms),
            length(it.p99_ms),
        ]);
    }
    table
}
