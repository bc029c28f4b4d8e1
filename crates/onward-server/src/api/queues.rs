//! `/queues`: what waits where.

use std::collections::BTreeMap;

use axum::extract::State;
use onward::{Filter, RunState};
use serde::Serialize;

use super::workflows::each_run;
use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::limits::RUNNING_SAMPLE;

#[derive(Default, Serialize)]
struct Queue {
    name: String,
    queued: u64,
    /// Over the newest running runs, up to a limit.
    running: u64,
    served_by: usize,
}

pub(crate) async fn list(State(app): State<App>) -> Answer {
    let stats = app.stats().await?;
    let mut found: BTreeMap<String, Queue> = BTreeMap::new();
    for (name, queued) in &stats.queued {
        found.entry(name.clone()).or_default().queued = *queued;
    }
    for name in stats.workers.iter().flat_map(|worker| &worker.queues) {
        found.entry(name.clone()).or_default().served_by += 1;
    }
    let filter = Filter { states: vec![RunState::Running], ..Filter::default() };
    each_run(&app, filter, RUNNING_SAMPLE, |run| {
        found.entry(run.queue.clone()).or_default().running += 1;
    })
    .await?;
    let items: Vec<_> = found.into_iter().map(|(name, queue)| Queue { name, ..queue }).collect();
    answer::ok(&Page { items, next: None })
}
