//! Checks of runs: those that nobody serves, were left, are stuck, crash, or could not be undone.
//!
//! Owns: which runs need somebody. Looks at a bounded number of the newest ones, and says so.

use std::collections::BTreeMap;
use std::time::Duration;

use onward::limits::{PAGE_ROWS_MAX, SUSPECT_CRASHES};
use onward::{
    Around, Code, Filter, Query, Run, RunId, RunState, Timestamp, Waits, Why, WorkerInfo, why,
};

use super::finding::Finding;
use crate::ops::OPERATION;
use crate::place::Place;
use crate::problem::Problem;
use crate::text;

/// Runs of each kind that are looked at: one page of a store.
const RUNS_MAX: usize = PAGE_ROWS_MAX;

/// How long a run may be queued before it is asked whether anybody serves it: a deploy's worth.
const QUEUED_LONG: Duration = Duration::from_secs(60);

/// Runs that have been queued for a while and that no worker serves.
pub(super) async fn unserved(
    place: &Place,
    workers: &[WorkerInfo],
) -> Result<Vec<Finding>, Problem> {
    let long = i64::try_from(QUEUED_LONG.as_millis()).unwrap_or(0);
    let now = place.now();
    let before = Timestamp::from_millis(now.as_millis().saturating_sub(long));
    let filter = Filter { created_before: Some(before), ..Filter::default() };
    let Looked { runs, cut } = runs(place, RunState::Queued, filter).await?;
    let mut groups: BTreeMap<(String, String), Vec<RunId>> = BTreeMap::new();
    let around = Around { workers, ..Around::default() };
    for run in runs.iter().filter(|run| !is_of_server(place, run)) {
        if let Why::NoWorker { workflow, queue } = why(run, around, now) {
            groups.entry((workflow, queue)).or_default().push(run.id);
        }
    }
    let found = groups.into_iter().map(|((workflow, queue), ids)| {
        let count = text::count(ids.len() as u64, "run");
        let said = format!(
            "{count} of {workflow:?} in queue {queue:?} queued for over a minute, and no worker \
             serves both"
        );
        let todo = format!(
            "Start a worker that serves the workflow named {workflow:?}, with .queues([{queue:?}]), or see \
             which there are: onward workers list"
        );
        Finding::bad("queued", said, todo).of_runs(ids)
    });
    let well = "every run that is queued has a worker, or is new";
    Ok(or_well(found, "queued", well_of(well, cut)))
}

/// Runs whose worker is gone and that no other can take over. A worker may leave nothing behind to be
/// listed by: where its process is seen to be gone, its lease is.
pub(super) async fn left(place: &Place, workers: &[WorkerInfo]) -> Result<Vec<Finding>, Problem> {
    let now = place.now();
    let Looked { runs, cut } = runs(place, RunState::Running, Filter::default()).await?;
    let around = Around { workers, ..Around::default() };
    let is_left = |run: &&Run| matches!(why(run, around, now), Why::WorkerGone { served: false });
    let left = runs.iter().filter(|run| !is_of_server(place, run)).filter(is_left);
    let ids: Vec<_> = left.map(|run| run.id).collect();
    let found = (!ids.is_empty()).then(|| {
        let count = text::count(ids.len() as u64, "run");
        Finding::bad(
            "running",
            format!("{count} whose worker is gone, and no live worker serves it"),
            "Start a worker that serves it: it goes on within a lease and a second.",
        )
        .of_runs(ids)
    });
    let well = well_of("every run that is running has a worker", cut);
    Ok(or_well(found.into_iter(), "running", well))
}

/// Runs that wait for an operator or another build, by why.
pub(super) async fn stuck(place: &Place) -> Result<Vec<Finding>, Problem> {
    let mut groups: BTreeMap<String, Vec<RunId>> = BTreeMap::new();
    let Looked { runs, cut } = runs(place, RunState::Waiting, Filter::default()).await?;
    for run in runs {
        if let Some(Waits::Stuck { code, .. }) = run.waits_for {
            groups.entry(code).or_default().push(run.id);
        }
    }
    let found = groups.into_iter().map(|(code, ids)| {
        let said = format!("{} stuck: {code}", text::count(ids.len() as u64, "run"));
        let known = Code::all().iter().find(|known| known.as_str() == code);
        let advice = known.map_or("See what it says with 'onward runs show ID'.", |c| c.advice());
        let then = "Then: onward runs list --state stuck -o ids | onward runs retry -";
        Finding::bad("stuck", said, format!("{advice} {then}")).of_runs(ids)
    });
    Ok(or_well(found, "stuck", well_of("no run waits for an operator", cut)))
}

/// Runs whose workers died several times in a row.
pub(super) async fn crashing(place: &Place) -> Result<Vec<Finding>, Problem> {
    let (mut ids, mut any_cut) = (Vec::new(), false);
    for state in [RunState::Queued, RunState::Running, RunState::Waiting] {
        let Looked { runs, cut } = runs(place, state, Filter::default()).await?;
        any_cut |= cut;
        let is_suspect = |run: &&Run| run.crashes >= SUSPECT_CRASHES;
        ids.extend(runs.iter().filter(is_suspect).map(|run| run.id));
    }
    let found = (!ids.is_empty()).then(|| {
        let count = text::count(ids.len() as u64, "run");
        Finding::bad(
            "crashes",
            format!("{count} whose worker died {SUSPECT_CRASHES} times in a row or more"),
            "Look at the worker's last words (memory, a panic that aborts) and at the step that it \
             was in: onward runs show ID. A build with another id takes them up again.",
        )
        .of_runs(ids)
    });
    Ok(or_well(found.into_iter(), "crashes", well_of("no run kills its workers", any_cut)))
}

/// Runs that turned back, and could not undo everything.
pub(super) async fn undo_failed(place: &Place) -> Result<Vec<Finding>, Problem> {
    let Looked { runs: failed, cut } = runs(place, RunState::Failed, Filter::default()).await?;
    let code = Code::UndoFailed.as_str();
    let is_left = |run: &&Run| run.failure.as_ref().is_some_and(|failure| failure.code == code);
    let ids: Vec<_> = failed.iter().filter(is_left).map(|run| run.id).collect();
    let found = (!ids.is_empty()).then(|| {
        let said = format!("{} ended with {code}", text::count(ids.len() as u64, "run"));
        let todo = format!("{} Which steps: onward runs show ID", Code::UndoFailed.advice());
        Finding::bad("undo", said, todo).of_runs(ids)
    });
    let well = well_of("no failed run has anything left to undo", cut);
    Ok(or_well(found.into_iter(), "undo", well))
}

/// A server carries out changes of many runs itself, and does not show the worker that does it.
fn is_of_server(place: &Place, run: &Run) -> bool {
    matches!(place, Place::Server(_)) && run.workflow == OPERATION
}

/// Runs that were looked at.
struct Looked {
    runs: Vec<Run>,
    /// Whether there are more, older ones.
    cut: bool,
}

/// The newest runs in this state that fit, up to the limit.
async fn runs(place: &Place, state: RunState, filter: Filter) -> Result<Looked, Problem> {
    let filter = Filter { states: vec![state], ..filter };
    let page = place.list(Query { filter, before: None, limit: RUNS_MAX }).await?;
    Ok(Looked { runs: page.runs, cut: page.more })
}

/// What is said where nothing was found: no more than was looked at.
fn well_of(well: &str, cut: bool) -> String {
    if cut {
        format!("{well}, among the newest {RUNS_MAX} of their state")
    } else {
        well.to_owned()
    }
}

fn or_well(
    found: impl Iterator<Item = Finding>,
    check: &'static str,
    well: String,
) -> Vec<Finding> {
    let mut found: Vec<_> = found.collect();
    if found.is_empty() {
        found.push(Finding::well(check, well));
    }
    found
}

#[cfg(test)]
mod tests {
    use onward::{Onward, Workflow};

    use super::*;

    #[tokio::test]
    async fn what_was_not_looked_at_is_not_called_well() {
        const LATER: Workflow<usize, ()> = Workflow::named("later");
        let onward = Onward::open("memory:").await.unwrap();
        let place = Place::Store(onward.clone());
        let said = async || stuck(&place).await.unwrap().remove(0).found;
        assert_eq!(said().await, "no run waits for an operator");
        for number in 0..=RUNS_MAX {
            onward.start(LATER, &number).delay(Duration::from_secs(3600)).await.unwrap();
        }
        let newest = "no run waits for an operator, among the newest 1000 of their state";
        assert_eq!(said().await, newest);
    }
}
