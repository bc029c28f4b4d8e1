//! `onward stats`: how many runs there are, and what the last hour brought.
//!
//! Owns: how these counts are printed. Never counts; the store does.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use onward::store::Minute;
use onward::{RunState, WorkerInfo};
use serde::{Deserialize, Serialize};

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::{Call, Place};
use crate::problem::{Exit, Problem};
use crate::table::{DIM, Table};
use crate::text;

/// Counts runs by state and queue, the workers, and the last hour
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward stats
  onward stats --watch=5
  onward stats -o json | jq .runs.failed")]
pub(crate) struct StatsArgs {}

#[derive(Deserialize, Serialize)]
struct Stats {
    runs: BTreeMap<RunState, u64>,
    queued: BTreeMap<String, u64>,
    workers: Vec<WorkerInfo>,
    /// The last hour by the minute, where the store can tell.
    series: Option<Vec<Minute>>,
}

impl StatsArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if global.output == Format::Ids {
            return Err(Problem::Usage("counts have no ids".to_owned()));
        }
        let place = Place::open(global).await?;
        let stats: Stats = place.ask(&Call::get("/stats")).await?;
        match global.output {
            Format::Json => output::print_json(&stats)?,
            _ => stats.write(&mut output::stdout())?,
        }
        Ok(Exit::Ok)
    }
}

impl Stats {
    fn write(&self, out: &mut dyn Write) -> Result<(), Problem> {
        let mut table = Table::new(["STATE", "RUNS"]);
        for state in RunState::ALL {
            let runs = self.runs.get(&state).copied().unwrap_or(0);
            table.row([state.into(), runs.to_string().into()]);
        }
        table.write(out)?;
        if !self.queued.is_empty() {
            writeln!(out)?;
            let mut table = Table::new(["QUEUE", "QUEUED"]);
            for (queue, runs) in &self.queued {
                table.row([text::line(queue).into(), runs.to_string().into()]);
            }
            table.write(out)?;
        }
        let held = self.workers.iter().map(|worker| worker.running).sum();
        let workers = text::count(self.workers.len() as u64, "worker");
        writeln!(out, "\n{workers} up, with {}", text::count(held, "run"))?;
        if let Some(series) = &self.series {
            let sum = |count: fn(&Minute) -> u64| series.iter().map(count).sum::<u64>();
            let (started, ended) = (sum(|it| it.started), sum(|it| it.ended));
            let failed = sum(|it| it.failed);
            writeln!(
                out,
                "{DIM}last hour:{DIM:#} {started} started, {ended} ended, {failed} of them failed"
            )?;
        }
        Ok(out.flush()?)
    }
}
