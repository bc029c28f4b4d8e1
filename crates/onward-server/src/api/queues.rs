//! `/queues`: what waits where, and what limits it.
//!
//! Owns: the rows about queues. Never decides what a claim takes; the store does.

use std::collections::BTreeMap;

use axum::extract::State;
use onward::{Queue, QueueCounts, QueueLimits, Timestamp};
use serde::Serialize;

use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::operation::of_users;
use crate::problem::Problem;
use crate::request::{At, Body, Params};

#[derive(Default, Serialize)]
struct Shown {
    name: String,
    queued: u64,
    running: u64,
    oldest_due_at: Option<Timestamp>,
    served_by: usize,
    limits: QueueLimits,
    paused_at: Option<Timestamp>,
}

/// A page of queues that have runs or are set up; the first one also has those that workers serve.
pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let served = served_by(&app).await?;
    let page = app.onward.queues(params.cursor()).await?;
    let next = page.queues.last().map(|counts| counts.queue.name.clone()).filter(|_| page.more);
    let mut found: BTreeMap<String, Shown> = BTreeMap::new();
    for name in served.keys().filter(|_| params.cursor().is_none() && next.is_none()) {
        found.insert(name.clone(), Shown { name: name.clone(), ..Shown::default() });
    }
    for counts in page.queues {
        found.insert(counts.queue.name.clone(), shown(counts));
    }
    for (name, queue) in &mut found {
        queue.served_by = served.get(name).copied().unwrap_or(0);
    }
    answer::ok(&Page { items: found.into_values().collect(), next })
}

/// How many workers serve each queue; the server's own is no sign that anybody is at work.
async fn served_by(app: &App) -> Result<BTreeMap<String, usize>, Problem> {
    let mut served = BTreeMap::new();
    for name in of_users(&app.stats().await?.workers).flat_map(|worker| &worker.queues) {
        *served.entry(name.clone()).or_default() += 1;
    }
    Ok(served)
}

fn shown(counts: QueueCounts) -> Shown {
    let QueueCounts { queue, queued, running, oldest_due_at } = counts;
    let (limits, paused_at) = (queue.limits, queue.paused_at);
    Shown { name: queue.name, queued, running, oldest_due_at, served_by: 0, limits, paused_at }
}

pub(crate) async fn limit(
    State(app): State<App>,
    At(name): At<String>,
    Body(limits): Body<QueueLimits>,
) -> Answer {
    answer::ok(&app.onward.queue(name).limits(limits).save().await?)
}

#[derive(Serialize)]
struct Cleared {
    /// Whether it had limits, or was paused.
    cleared: bool,
    queue: Queue,
}

pub(crate) async fn clear(State(app): State<App>, At(name): At<String>) -> Answer {
    let queue = app.onward.queue(name);
    let cleared = queue.clear().await?;
    answer::ok(&Cleared { cleared, queue: queue.status().await? })
}

pub(crate) async fn pause(State(app): State<App>, At(name): At<String>) -> Answer {
    answer::ok(&app.onward.queue(name).pause().await?)
}

pub(crate) async fn resume(State(app): State<App>, At(name): At<String>) -> Answer {
    answer::ok(&app.onward.queue(name).resume().await?)
}
