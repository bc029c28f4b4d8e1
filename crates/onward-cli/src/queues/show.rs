//! `onward queues list` and `show`: queues as a table, as JSON lines, or as names.
//!
//! Owns: the rows about queues. Never changes one.

use std::io::Write;

use onward::{Queue, QueueCounts, QueueLimits, Timestamp};

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::table::Table;
use crate::text;

/// Characters of a name in a list.
const NAME_CHARS: usize = 40;

/// Lists every queue.
pub(super) async fn list(global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let all = place.queues().await?;
    let table = |all: &[QueueCounts]| {
        let mut table = Table::new(["NAME", "QUEUED", "RUNNING", "LIMITS", "STATE"]);
        for counts in all {
            let queue = &counts.queue;
            table.row([
                text::cut(&queue.name, NAME_CHARS).into(),
                counts.queued.to_string().into(),
                counts.running.to_string().into(),
                limits(&queue.limits).into(),
                state(queue, place.now()).into(),
            ]);
        }
        table
    };
    output::print_rows(global.output, &all, table, |counts| counts.queue.name.clone())?;
    Ok(Exit::Ok)
}

/// Shows one queue. One that nobody set up and that has no live run is shown too: it has no limits.
pub(super) async fn show(name: &str, global: &Global) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let found = place.queues().await?.into_iter().find(|counts| counts.queue.name == name);
    let unknown = || QueueCounts { queue: Queue::named(name), ..QueueCounts::default() };
    let counts = found.unwrap_or_else(unknown);
    match global.output {
        Format::Table => write_whole(&mut output::stdout(), &counts, place.now())?,
        Format::Json => output::print_json(&counts)?,
        Format::Ids => writeln!(output::stdout(), "{name}")?,
    }
    Ok(Exit::Ok)
}

/// Prints how a queue is set up, in one line.
pub(super) fn print_queue(format: Format, queue: &Queue, now: Timestamp) -> Result<(), Problem> {
    match format {
        Format::Table => {
            let (name, limits) = (text::line(&queue.name), limits(&queue.limits));
            writeln!(output::stdout(), "{name}: {limits}, {}", state(queue, now))?;
        }
        Format::Json => output::print_json(queue)?,
        Format::Ids => writeln!(output::stdout(), "{}", queue.name)?,
    }
    Ok(())
}

fn write_whole(out: &mut dyn Write, counts: &QueueCounts, now: Timestamp) -> Result<(), Problem> {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.into(), value.into()]);
    let queue = &counts.queue;
    row("queue", text::line(&queue.name));
    row("state", state(queue, now));
    row("queued", counts.queued.to_string());
    row("running", counts.running.to_string());
    let number = |limit: Option<u32>| limit.map_or("no limit".to_owned(), |runs| runs.to_string());
    row("concurrency", number(queue.limits.concurrency));
    row("per worker", number(queue.limits.per_worker));
    row("rate", queue.limits.rate.map_or("no limit".to_owned(), |rate| rate.to_string()));
    row("per lane", number(queue.limits.per_lane));
    if let Some(changed_at) = queue.changed_at {
        row("changed", text::moment(changed_at, now));
    }
    Ok(table.write(out)?)
}

fn state(queue: &Queue, now: Timestamp) -> String {
    match queue.paused_at {
        Some(paused_at) => format!("paused {}", text::moment(paused_at, now)),
        None => "open".to_owned(),
    }
}

/// The limits in a few words.
fn limits(limits: &QueueLimits) -> String {
    let named = [
        (limits.concurrency.map(|runs| format!("{runs} at once"))),
        (limits.per_worker.map(|runs| format!("{runs} per worker"))),
        (limits.rate.map(|rate| rate.to_string())),
        (limits.per_lane.map(|runs| format!("{runs} per lane"))),
    ];
    let named: Vec<_> = named.into_iter().flatten().collect();
    if named.is_empty() { "no limits".to_owned() } else { named.join(", ") }
}
