//! A change of many runs, as a run of its own.
//!
//! Owns: the workflow that goes through the runs of a filter, page by page. Each page is chosen in
//! one step and changed in the next, so a crash between two runs changes none of them twice and loses
//! none of the count. Never touches a run of its own kind.

use std::collections::BTreeMap;
use std::time::Duration;

use onward::{
    Code, Ctx, Failure, Filter, Onward, Query, Retry, RunId, RunState, Timestamp, Worker,
    WorkerInfo, Workflow,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::endpoint::API;
use crate::limits::{OPERATION_PAGE, OPERATION_PAGES_MAX};
use crate::problem::Problem;

/// The workflow.
pub(crate) const OPERATION: Workflow<Operation, Totals> = Workflow::named("onward-operation");

/// The queue that servers and mounted routers serve.
pub(crate) const QUEUE: &str = "onward-operations";

const CHOOSE: &str = "choose";
const CHANGE: &str = "change";

/// Refuses what would start such a run by another way than the one that checks roles.
pub(crate) fn check_workflow(workflow: &str) -> Result<(), Problem> {
    if workflow == OPERATION.name() {
        let text = format!("{workflow} is started by POST {API}/operations only");
        return Err(Problem::new(Code::Forbidden, text));
    }
    Ok(())
}

/// The workers that serve something of the user's: a server's own is no sign that anybody is at work.
pub(crate) fn of_users(workers: &[WorkerInfo]) -> impl Iterator<Item = &WorkerInfo> {
    workers.iter().filter(|worker| worker.workflows.iter().any(|name| name != OPERATION.name()))
}

/// What is done to each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Cancel,
    Retry,
    Pause,
    Resume,
    Delete,
}

/// Which runs are meant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Chosen {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) state: Vec<RunState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_before: Option<Timestamp>,
}

impl Chosen {
    pub(crate) fn filter(&self) -> Filter {
        let it = self.clone();
        Filter {
            workflow: it.workflow,
            states: it.state,
            queue: it.queue,
            key: it.key,
            tags: it.tags,
            created_from: it.created_from,
            created_before: it.created_before,
            ..Filter::default()
        }
    }
}

/// The input of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    pub(crate) filter: Chosen,
    /// Those that were named, instead of a filter.
    pub(crate) ids: Vec<RunId>,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) matched: u64,
    pub(crate) done: u64,
    pub(crate) skipped: u64,
    pub(crate) failed: u64,
    /// Whether there were more runs than it goes through.
    #[serde(default)]
    pub(crate) cut: bool,
}

/// A page of runs to change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Page {
    runs: Vec<RunId>,
    /// Where the next one begins, if there is one.
    next: Option<RunId>,
}

/// The worker that executes these runs, beside the router that takes them.
#[derive(Default)]
pub(crate) struct Operator(Mutex<Option<Worker>>);

impl Operator {
    /// Starts the worker, unless it is there. A router shows a store that it cannot write, too; then
    /// these runs wait for another.
    pub(crate) async fn begin(&self, onward: &Onward) {
        let mut worker = self.0.lock().await;
        if worker.is_some() {
            return;
        }
        let client = onward.clone();
        let function = move |ctx, operation| operate(client.clone(), ctx, operation);
        match onward.worker().queues([QUEUE]).serve(OPERATION, function).start().await {
            Ok(started) => *worker = Some(started),
            Err(error) => tracing::warn!(%error, "changes of many runs are not executed"),
        }
    }

    /// Ends the worker, and lets the step that it is at finish.
    pub(crate) async fn end(&self) {
        let worker = self.0.lock().await.take();
        if let Some(worker) = worker {
            shut_down(worker).await;
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let worker = self.0.get_mut().take();
        // Without a runtime the worker has ended with it.
        if let (Some(worker), Ok(runtime)) = (worker, Handle::try_current()) {
            runtime.spawn(shut_down(worker));
        }
    }
}

async fn shut_down(worker: Worker) {
    if let Err(error) = worker.shutdown().await {
        tracing::warn!(%error, "changes of many runs go on elsewhere after a while");
    }
}

async fn operate(onward: Onward, ctx: Ctx, operation: Operation) -> Result<Totals, Failure> {
    let retry = || Retry::exponential(Duration::from_millis(500)).tries(20);
    let (mut totals, mut before) = (Totals::default(), None);
    for _ in 0..OPERATION_PAGES_MAX {
        let page = ctx
            .step(CHOOSE, async |_| choose(&onward, &operation, before, totals.matched).await)
            .retry(retry())
            .await?;
        let so_far = totals;
        totals = ctx
            .step(CHANGE, async |_| change(&onward, &operation, &page.runs, so_far).await)
            .retry(retry())
            .await?;
        before = page.next;
        if before.is_none() {
            return Ok(totals);
        }
    }
    Ok(Totals { cut: true, ..totals })
}

/// The next runs to change.
async fn choose(
    onward: &Onward,
    operation: &Operation,
    before: Option<RunId>,
    matched: u64,
) -> Result<Page, Failure> {
    if !operation.ids.is_empty() {
        let passed = usize::try_from(matched).unwrap_or(usize::MAX).min(operation.ids.len());
        let rest = &operation.ids[passed..];
        let runs = rest[..rest.len().min(OPERATION_PAGE)].to_vec();
        let next = rest.get(OPERATION_PAGE).copied();
        return Ok(Page { runs, next });
    }
    let query = Query { filter: operation.filter.filter(), before, limit: OPERATION_PAGE };
    let page = onward.list(query).await?;
    let next = page.runs.last().map(|run| run.id).filter(|_| page.more);
    let others = page.runs.iter().filter(|run| run.workflow != OPERATION.name());
    Ok(Page { runs: others.map(|run| run.id).collect(), next })
}

/// Changes these runs, and adds them to the count.
async fn change(
    onward: &Onward,
    operation: &Operation,
    runs: &[RunId],
    mut totals: Totals,
) -> Result<Totals, Failure> {
    let these = onward.these(runs.to_vec());
    let steered = match operation.action {
        Action::Cancel => these.cancel(),
        Action::Retry => these.retry(),
        Action::Pause => these.pause(),
        Action::Resume => these.resume(),
        Action::Delete => these.delete(),
    };
    let steered = steered.await?;
    totals.matched += steered.matched;
    totals.done += steered.done;
    totals.skipped += steered.skipped_total();
    totals.failed += steered.failed;
    Ok(totals)
}

/// What the records of such a run say about how far it is.
pub(crate) fn progress(records: &[onward::Record]) -> Option<Totals> {
    let of_change = |record: &&onward::Record| {
        record.step == CHANGE || record.step.starts_with(&format!("{CHANGE}#"))
    };
    records.iter().rev().filter(of_change).find_map(|record| match &record.entry {
        onward::Entry::Done(json) => json.read().ok(),
        _ => None,
    })
}
