//! `onward queues set`: all limits of a queue at once.
//!
//! Owns: how limits are written. Never decides whether they make sense; the library does.

use std::time::Duration;

use clap::{ArgGroup, Args};
use onward::{QueueLimits, Rate};

use crate::args::{self, Global};
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::queues::show;

/// Says the limits of a queue: all of them, so that what is not named is not limited
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward queues set ocr --concurrency 8 --per-worker 2
  onward queues set mail --rate 10/1s --per-lane 1

They hold from the next claim of every worker on. A paused queue stays paused.")]
#[command(group = ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct SetArgs {
    /// The queue's name
    name: String,
    /// Runs of it that are running at once, over all workers
    #[arg(long, value_name = "RUNS", group = "limits")]
    concurrency: Option<u32>,
    /// Runs of it that one worker has at once
    #[arg(long, value_name = "RUNS", group = "limits")]
    per_worker: Option<u32>,
    /// Runs of it that begin or go on in any period, over all workers, as 10/1s
    #[arg(long, value_name = "RUNS/PERIOD", group = "limits", value_parser = rate)]
    rate: Option<Rate>,
    /// Runs of one lane that are running at once, over all workers; lanes take turns
    #[arg(long, value_name = "RUNS", group = "limits")]
    per_lane: Option<u32>,
}

fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || "a rate is written as 10/1s or 100/1m".to_owned();
    let (count, period) = text.split_once('/').ok_or_else(wrong)?;
    let count = count.trim().parse().map_err(|_| wrong())?;
    let period: Duration = args::duration(period.trim())?;
    let period_ms = i64::try_from(period.as_millis()).map_err(|_| wrong())?;
    Ok(Rate { count, period_ms })
}

impl SetArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open_or_create(global).await?;
        let limits = QueueLimits {
            concurrency: self.concurrency,
            per_worker: self.per_worker,
            rate: self.rate,
            per_lane: self.per_lane,
        };
        let queue = place.limit_queue(&self.name, limits).await?;
        show::print_queue(global.output, &queue, place.now())?;
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_period() {
        assert_eq!(rate("10/1s"), Ok(Rate { count: 10, period_ms: 1_000 }));
        assert_eq!(rate("100 / 2m"), Ok(Rate { count: 100, period_ms: 120_000 }));
        for wrong in ["10", "ten/1s", "10/soon", "-1/1s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
