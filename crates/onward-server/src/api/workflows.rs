//! `/workflows`: what there is, as far as the newest runs and the workers tell.
//!
//! Owns: the counts by workflow. Never looks at more runs than its sample.

use std::collections::BTreeMap;

use axum::extract::State;
use onward::{Filter, Query, RunState, Timestamp};
use serde::Serialize;

use crate::answer::{self, Answer};
use crate::app::App;
use crate::limits::{SCAN_PAGE, WORKFLOWS_SAMPLE};
use crate::operation::OPERATION;
use crate::problem::Problem;

#[derive(Serialize)]
struct Workflows {
    /// How many of the newest runs were counted.
    sample: usize,
    items: Vec<Workflow>,
}

#[derive(Default, Serialize)]
struct Workflow {
    name: String,
    runs: BTreeMap<RunState, u64>,
    served_by: usize,
    last_started_at: Option<Timestamp>,
}

pub(crate) async fn list(State(app): State<App>) -> Answer {
    let (mut found, mut sample) = (BTreeMap::<String, Workflow>::new(), 0);
    let stats = app.stats().await?;
    for name in stats.workers.iter().flat_map(|worker| &worker.workflows) {
        found.entry(name.clone()).or_default().served_by += 1;
    }
    each_run(&app, Filter::default(), WORKFLOWS_SAMPLE, |run| {
        sample += 1;
        let workflow = found.entry(run.workflow.clone()).or_default();
        *workflow.runs.entry(run.state).or_default() += 1;
        workflow.last_started_at = workflow.last_started_at.max(Some(run.created_at));
    })
    .await?;
    found.remove(OPERATION.name());
    let items = found.into_iter().map(|(name, found)| Workflow { name, ..found }).collect();
    answer::ok(&Workflows { sample, items })
}

/// Looks at the newest runs that fit, page by page, so that their payloads are not all in memory.
pub(super) async fn each_run(
    app: &App,
    filter: Filter,
    most: usize,
    mut see: impl FnMut(&onward::Run),
) -> Result<(), Problem> {
    let mut query = Query { filter, before: None, limit: SCAN_PAGE };
    let mut left = most;
    while left > 0 {
        query.limit = left.min(SCAN_PAGE);
        let page = app.onward.list(query.clone()).await?;
        page.runs.iter().for_each(&mut see);
        left = left.saturating_sub(page.runs.len());
        query.before = page.runs.last().map(|run| run.id);
        if !page.more {
            break;
        }
    }
    Ok(())
}
