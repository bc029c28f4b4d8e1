//! A snapshot: all that a store shows, to compare before with after, and one store with another.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::PAGE_ROWS_MAX;
use crate::store::{Duplicates, Query, Stats, Store, Which};
use crate::{LogLine, Queue, Record, Run, RunId, Schedule};

/// All that a store shows, to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The runs, newest first.
    pub runs: Vec<Run>,
    /// Their histories.
    pub histories: Vec<Vec<Record>>,
    /// Their logs.
    pub logs: Vec<Vec<LogLine>>,
    /// What came with their keys and was suppressed.
    pub duplicates: Vec<Duplicates>,
    /// Which run has each key that any run came with.
    pub keys: BTreeMap<(String, String), Option<RunId>>,
    /// The schedules, by name.
    pub schedules: Vec<Schedule>,
    /// The queues that are set up, by name.
    pub queues: Vec<Queue>,
    /// Counts and workers.
    pub stats: Stats,
}

impl Snapshot {
    /// What the store shows now.
    pub async fn of(store: &dyn Store) -> Self {
        let runs = all_runs(store).await;
        let mut histories = Vec::new();
        let mut duplicates = Vec::new();
        let mut logs = Vec::new();
        for run in &runs {
            histories.push(store.history(run.id, None, PAGE_ROWS_MAX).await.unwrap().records);
            duplicates.push(store.duplicates(run.id).await.unwrap());
            if let Some(notebook) = store.notebook() {
                logs.push(notebook.log(run.id, 0, PAGE_ROWS_MAX).await.unwrap().lines);
            }
        }
        let named: BTreeSet<_> = (runs.iter())
            .filter_map(|run| Some((run.workflow.clone(), run.key.clone()?)))
            .collect();
        let mut keys = BTreeMap::new();
        for (workflow, key) in named {
            let which = Which::Key { workflow: workflow.clone(), key: key.clone() };
            keys.insert((workflow, key), store.get(which).await.unwrap().map(|run| run.id));
        }
        let mut stats = store.stats().await.unwrap();
        stats.workers.sort_by_key(|worker| worker.id);
        let schedules = match store.schedules() {
            Some(store) => store.list_schedules(None, PAGE_ROWS_MAX).await.unwrap().schedules,
            None => Vec::new(),
        };
        let queues = match store.queues() {
            Some(store) => store.list_queues(None, PAGE_ROWS_MAX).await.unwrap().queues,
            None => Vec::new(),
        };
        let queues = queues.into_iter().map(|counts| counts.queue).filter(Queue::is_limited);
        let queues = queues.collect();
        Self { runs, histories, logs, duplicates, keys, schedules, queues, stats }
    }

    /// The same without the workers, which are no part of a copy.
    #[must_use]
    pub fn without_workers(mut self) -> Self {
        self.stats.workers.clear();
        self
    }
}

async fn all_runs(store: &dyn Store) -> Vec<Run> {
    let mut query = Query { limit: PAGE_ROWS_MAX, ..Query::default() };
    let mut runs = Vec::new();
    loop {
        let page = store.list(query.clone()).await.unwrap();
        runs.extend(page.runs);
        query.before = runs.last().map(|run| run.id);
        if !page.more {
            return runs;
        }
    }
}
