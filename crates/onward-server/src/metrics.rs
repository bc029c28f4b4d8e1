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
    ended(app, &mut page).await?;
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

/// How late each queue is.
async fn late(app: &App, page: &mut Page) -> Result<(), Problem> {
    let help = "How long the queued run that waits longest has been due, by queue.";
    page.metric("onward_queue_oldest_due_seconds", "gauge", help);
    let now = app.now();
    for (queue, due) in app.oldest_due().await?.iter() {
        page.row(&[("queue", queue)], now.since(*due).as_secs());
    }
    Ok(())
}

/// How many runs ended. Each kind has its row from the beginning on, or the first increase is missed.
async fn ended(app: &App, page: &mut Page) -> Result<(), Problem> {
    let help = "Runs that ended since this server began, by state; of the whole store.";
    page.metric("onward_runs_ended_total", "counter", help);
    for ends in app.ends().await?.iter() {
        page.row(&[("state", ends.state.as_str())], ends.number);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onward::store::{MemoryStore, Prune};
    use onward::{Onward, TestClock, Workflow};
    use tokio::sync::watch;
    use tokio::time::advance;

    use super::*;
    use crate::app::Phase;
    use crate::limits::{ENDS_LAG, STATS_KEPT};
    use crate::{Access, Options, Role};

    const DOUBLE: Workflow<u32, u32> = Workflow::named("double");

    fn client(clock: &TestClock) -> Onward {
        Onward::with_store(Arc::new(MemoryStore::with_clock(Arc::new(clock.clone()))))
    }

    fn app_over(onward: &Onward) -> App {
        let options = Options::new(Access::Open(Role::Read));
        App::new(onward.clone(), options, watch::channel(Phase::Up).1)
    }

    async fn has(app: &App, line: &str) -> bool {
        let page = text(app).await.unwrap_or_else(|_| panic!("no metrics"));
        page.lines().any(|it| it == line)
    }

    #[tokio::test(start_paused = true)]
    async fn scrapes_in_one_second_look_at_the_store_once() {
        let app = app_over(&client(&TestClock::new()));
        let late = "onward_queue_oldest_due_seconds{queue=\"bulk\"} 0";
        assert!(!has(&app, late).await);
        app.onward.start(DOUBLE, &1).queue("bulk").await.unwrap();
        assert!(!has(&app, late).await, "it was looked for again");
        advance(STATS_KEPT).await;
        assert!(has(&app, late).await);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_are_counted_once_and_stay_counted_when_runs_are_pruned() {
        let clock = TestClock::new();
        let onward = client(&clock);
        onward.start(DOUBLE, &0).await.unwrap().cancel().await.unwrap();
        clock.advance(ENDS_LAG);
        let app = app_over(&onward);
        let ended = |number| format!("onward_runs_ended_total{{state=\"cancelled\"}} {number}");
        for n in 0..2 {
            onward.start(DOUBLE, &n).await.unwrap().cancel().await.unwrap();
        }
        assert!(has(&app, &ended(0)).await, "their neighbours may not be seen yet");
        assert!(has(&app, "onward_runs_ended_total{state=\"failed\"} 0").await);
        clock.advance(ENDS_LAG * 2);
        assert!(has(&app, &ended(0)).await, "it was looked for again");
        advance(STATS_KEPT).await;
        assert!(has(&app, &ended(2)).await);
        onward.start(DOUBLE, &2).await.unwrap().cancel().await.unwrap();
        clock.advance(ENDS_LAG * 2);
        advance(STATS_KEPT).await;
        assert!(has(&app, &ended(3)).await);
        let pruned = onward.prune(Prune::older_than(std::time::Duration::ZERO)).await.unwrap();
        assert_eq!(pruned, 4);
        advance(STATS_KEPT).await;
        assert!(has(&app, &ended(3)).await);
    }
}
