//! Metrics in the text form of Prometheus.
//!
//! Owns: the names, which all begin with `onward_` and have base units. Never an id in a label.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use onward::RunState;

use crate::app::App;
use crate::limits::QUEUES_COUNTED;
use crate::operation::of_users;
use crate::problem::Problem;

/// Counts of this process since it began.
#[derive(Default)]
pub(crate) struct Counts {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    keys: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counts {
    /// An endpoint was answered with this status.
    pub(crate) fn answered(&self, endpoint: &'static str, status: StatusCode) {
        count(&self.requests, (endpoint, status.as_u16()));
    }

    /// A start or a signal came with an idempotency key, or without one.
    pub(crate) fn keyed(&self, outcome: &'static str) {
        count(&self.keys, outcome);
    }
}

fn count<K: Ord>(counts: &Mutex<BTreeMap<K, u64>>, key: K) {
    *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
}

/// `GET /metrics`.
pub(crate) async fn show(State(app): State<App>) -> Result<Response, Problem> {
    let text = text(&app).await?;
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    Ok(([kind], text).into_response())
}

async fn text(app: &App) -> Result<String, Problem> {
    let stats = app.stats().await?;
    let mut page = Page::default();
    page.metric("onward_build_info", "gauge", "The version of this server, as a label.");
    page.row(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.metric("onward_runs", "gauge", "Runs in the store, by state.");
    for state in RunState::ALL {
        let number = stats.runs.get(&state).copied().unwrap_or(0);
        page.row(&[("state", state.as_str())], number);
    }
    page.metric("onward_queue_depth", "gauge", "Queued runs, by queue.");
    for (queue, number) in &stats.queued {
        page.row(&[("queue", queue)], *number);
    }
    late(app, &mut page).await?;
    page.metric(
        "onward_workers",
        "gauge",
        "Workers that are up and are not a server's own, by build.",
    );
    let mut builds: BTreeMap<&str, u64> = BTreeMap::new();
    for worker in of_users(&stats.workers) {
        *builds.entry(&worker.build).or_default() += 1;
    }
    for (build, number) in builds {
        page.row(&[("build", build)], number);
    }
    page.metric("onward_worker_runs", "gauge", "Runs that workers hold.");
    page.row(&[], of_users(&stats.workers).map(|worker| worker.running).sum());
    page.metric("onward_streams", "gauge", "Open streams of this server.");
    page.row(&[], app.changes.open() as u64);
    counted(&mut page, &app.counts);
    Ok(page.text)
}

/// How late each queue is, page after page of them up to a limit.
async fn late(app: &App, page: &mut Page) -> Result<(), Problem> {
    let help = "How long the queued run that waits longest has been due, by queue.";
    page.metric("onward_queue_oldest_due_seconds", "gauge", help);
    if app.store().queues().is_none() {
        return Ok(());
    }
    let now = app.now();
    let (mut after, mut seen) = (None::<String>, 0);
    loop {
        let some = app.onward.queues(after.as_deref()).await?;
        for counts in &some.queues {
            if let Some(due) = counts.oldest_due_at {
                page.row(&[("queue", &counts.queue.name)], now.since(due).as_secs());
            }
        }
        seen += some.queues.len();
        after = some.queues.last().map(|counts| counts.queue.name.clone());
        if !some.more || seen >= QUEUES_COUNTED {
            return Ok(());
        }
    }
}

fn counted(page: &mut Page, counts: &Counts) {
    page.metric("onward_http_requests_total", "counter", "Answered requests of this server.");
    let requests = counts.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for ((endpoint, status), number) in requests {
        page.row(&[("endpoint", endpoint), ("status", &status.to_string())], number);
    }
    let help = "Starts and signals at this server, by what came of their key.";
    page.metric("onward_idempotency_requests_total", "counter", help);
    let keys = counts.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for (outcome, number) in keys {
        page.row(&[("outcome", outcome)], number);
    }
}

#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    fn metric(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a text does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn row(&mut self, labels: &[(&str, &str)], number: u64) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.text, "{}{labels} {number}", self.name);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
