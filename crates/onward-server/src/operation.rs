//! A change of many runs, as a run of its own.
//!
//! Owns: the workflow that goes through the runs of a filter, page by page. Each page is chosen in
//! one step and changed in the next. After a crash between two runs the page is gone through again:
//! what was cancelled, retried or deleted since it was chosen counts as done and is left alone; a
//! pause and a resume are said once more. How runs are retried is in `retry`. Never touches a run of
//! its own kind.

mod retry;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use onward::store::Which;
use onward::{
    Code, Ctx, Failure, Onward, Query, Retry, Run, RunId, RunState, Timestamp, Waits, Worker,
    WorkerInfo, Workflow,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::chosen::Chosen;
use crate::endpoint::API;
use crate::limits::{OPERATION_PACED_SECS, OPERATION_PAGE, OPERATION_PAGES_MAX};
use crate::options::Role;
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

/// Refuses to let a deletion go on for whoever may not begin one.
pub(crate) fn check_goes_on(run: &Run, role: Role) -> Result<(), Problem> {
    // One whose input is not known may be one.
    let deletes = || {
        let operation = run.input.read::<Operation>();
        operation.map_or(true, |operation| operation.action == Action::Delete)
    };
    if run.workflow == OPERATION.name() && role < Role::Admin && deletes() {
        let text = "to let a deletion of many runs go on takes the role admin";
        return Err(Problem::new(Code::Forbidden, text).of_run(run.id));
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

/// The input of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    pub(crate) filter: Chosen,
    /// Those that were named, instead of a filter.
    pub(crate) ids: Vec<RunId>,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    /// At most so many runs a second.
    #[serde(default)]
    pub(crate) pace: Option<NonZeroU32>,
    /// How many runs fitted when it was begun, as far as they were counted.
    #[serde(default)]
    pub(crate) expected: Option<Expected>,
}

impl Operation {
    /// How many runs one step changes: at a pace, so many that it is not long at them.
    fn page(&self) -> usize {
        let paced =
            self.pace.map_or(u32::MAX, |pace| pace.get().saturating_mul(OPERATION_PACED_SECS));
        usize::try_from(paced).unwrap_or(usize::MAX).min(OPERATION_PAGE)
    }
}

/// How many runs a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expected {
    pub(crate) runs: u64,
    /// Whether there are more than were counted.
    pub(crate) more: bool,
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
    /// When they were chosen: a cancel since then is this operation's. Unknown where an older build
    /// chose them.
    #[serde(default)]
    at: Option<Timestamp>,
    /// How often those had been woken that a retry lets go on: once more is this operation's.
    #[serde(default)]
    wakes: BTreeMap<RunId, u64>,
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
            .step(CHANGE, async |_| change(&onward, &operation, &page, so_far).await)
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
    let mut chosen = Page { at: Some(now(onward)), ..Page::default() };
    let retries = operation.action == Action::Retry;
    if !operation.ids.is_empty() {
        let passed = usize::try_from(matched).unwrap_or(usize::MAX).min(operation.ids.len());
        let rest = &operation.ids[passed..];
        chosen.runs = rest[..rest.len().min(operation.page())].to_vec();
        chosen.next = rest.get(operation.page()).copied();
        for id in chosen.runs.iter().filter(|_| retries) {
            chosen.wakes.extend(get(onward, *id).await?.as_ref().and_then(to_retry));
        }
        return Ok(chosen);
    }
    let query = Query { filter: operation.filter.filter(), before, limit: OPERATION_PAGE };
    let page = onward.list(query).await?;
    for (place, run) in page.runs.iter().enumerate() {
        if operation.filter.has(run) {
            chosen.runs.push(run.id);
            chosen.wakes.extend(to_retry(run).filter(|_| retries));
        }
        let is_last = place + 1 == page.runs.len();
        if is_last || chosen.runs.len() == operation.page() {
            chosen.next = Some(run.id).filter(|_| page.more || !is_last);
            break;
        }
    }
    Ok(chosen)
}

/// A run that a retry lets go on, and how often it had been woken before.
fn to_retry(run: &Run) -> Option<(RunId, u64)> {
    (is_stuck(run) || run.state == RunState::Failed).then_some((run.id, run.wakes))
}

fn is_stuck(run: &Run) -> bool {
    matches!(run.waits_for, Some(Waits::Stuck { .. }))
}

fn now(onward: &Onward) -> Timestamp {
    onward.store().clock().now()
}

async fn get(onward: &Onward, id: RunId) -> Result<Option<Run>, Failure> {
    Ok(onward.store().get(Which::Id(id)).await.map_err(onward::Error::from)?)
}

/// Changes the runs of a page, and adds them to the count.
async fn change(
    onward: &Onward,
    operation: &Operation,
    page: &Page,
    mut totals: Totals,
) -> Result<Totals, Failure> {
    let (own, page) = without_own(onward, operation, page).await?;
    totals.matched += own;
    totals.skipped += own;
    if operation.action == Action::Retry {
        return retry::page(onward, &page, operation.pace, totals).await;
    }
    let left = left(onward, operation.action, &page).await?;
    let changed = (page.runs.len() - left.len()) as u64;
    let these = onward.these(left);
    let steered = match operation.action {
        Action::Cancel => these.cancel(),
        Action::Retry => these.retry(),
        Action::Pause => these.pause(),
        Action::Resume => these.resume(),
        Action::Delete => these.delete(),
    };
    let steered = steered.pace(operation.pace.map_or(0, NonZeroU32::get)).await?;
    totals.matched += changed + steered.matched;
    totals.done += changed + steered.done;
    totals.skipped += steered.skipped_total();
    totals.failed += steered.failed;
    Ok(totals)
}

/// How many runs of a page are of this kind, and the page without them. A filter has left them out; by
/// their ids, whoever may not delete could let a deletion go on.
async fn without_own(
    onward: &Onward,
    operation: &Operation,
    page: &Page,
) -> Result<(u64, Page), Failure> {
    let (mut own, mut rest) = (0, page.clone());
    if operation.ids.is_empty() {
        return Ok((own, rest));
    }
    rest.runs.clear();
    for id in &page.runs {
        match get(onward, *id).await? {
            Some(run) if run.workflow == OPERATION.name() => own += 1,
            _ => rest.runs.push(*id),
        }
    }
    Ok((own, rest))
}

/// The runs of a page that were not changed yet: a crash may have cut the step before it was recorded.
/// A run that was cancelled and could not be undone would else be counted as skipped. A deleted one is
/// gone, and counts as deleted.
async fn left(onward: &Onward, action: Action, page: &Page) -> Result<Vec<RunId>, Failure> {
    if action != Action::Cancel {
        return Ok(page.runs.clone());
    }
    let is_changed =
        |run: &Run| run.cancel_at.zip(page.at).is_some_and(|(at, chosen)| at >= chosen);
    let mut left = Vec::with_capacity(page.runs.len());
    for id in &page.runs {
        if !get(onward, *id).await?.as_ref().is_some_and(is_changed) {
            left.push(*id);
        }
    }
    Ok(left)
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

#[cfg(test)]
mod tests {
    use super::*;

    const FAIL: Workflow<(), ()> = Workflow::named("fail");

    fn cancel_all(pace: u32) -> Operation {
        Operation {
            action: Action::Cancel,
            filter: Chosen { workflow: Some("fail".to_owned()), ..Chosen::default() },
            ids: Vec::new(),
            by: "ada".to_owned(),
            reason: None,
            pace: NonZeroU32::new(pace),
            expected: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_and_no_step_is_long_at_it() {
        let onward = Onward::open("memory:").await.unwrap();
        onward.start_many(FAIL, (0..7).map(|_| ())).await.unwrap();
        let operation = cancel_all(1);
        let mut page = choose(&onward, &operation, None, 0).await.unwrap();
        let begun = tokio::time::Instant::now();
        let mut totals = change(&onward, &operation, &page, Totals::default()).await.unwrap();
        assert_eq!((page.runs.len(), totals.done), (5, 5), "so many in five seconds");
        assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
        page = choose(&onward, &operation, page.next, totals.matched).await.unwrap();
        totals = change(&onward, &operation, &page, totals).await.unwrap();
        assert_eq!((page.runs.len(), page.next, totals.done), (2, None, 7));
        let ids = Operation { ids: page.runs.repeat(4), ..cancel_all(1) };
        assert_eq!(choose(&onward, &ids, None, 0).await.unwrap().runs.len(), 5);
        assert_eq!(cancel_all(1_000).page(), OPERATION_PAGE);
        assert_eq!(cancel_all(0).page(), OPERATION_PAGE);
    }
}
