//! Looking: one run, pages of runs, pages of history, and counts.

use super::child::child_of;
use super::stage::*;
use crate::limits::PAGE_ROWS_MAX;
use crate::store::{End, Error, Filter, NewRun, Query, Which};
use crate::{OnConflict, RunId, RunState};

/// A run is found by its id and by its key.
pub async fn run_is_found_by_id_and_by_key(stage: &Stage) {
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    assert_eq!(stage.run(run).await.id, run);
    assert_eq!(stage.by_key("order-1").await, Some(run));
    let elsewhere = Which::Key { workflow: "refund".into(), key: "order-1".into() };
    assert_eq!(stage.store.get(elsewhere).await.unwrap(), None);
    assert_eq!(stage.by_key("order-2").await, None);
    assert_eq!(stage.store.get(Which::Id(RunId::new())).await.unwrap(), None);
}

/// What one handle wrote, the other reads.
pub async fn handles_share_the_runs(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    let there = stage.other.get(Which::Id(lease.run)).await.unwrap();
    assert_eq!(there, Some(stage.run(lease.run).await));
    let page = stage.other.history(lease.run, None, 10).await.unwrap();
    assert_eq!(page.records, stage.history(lease.run).await);
}

/// Each condition of a filter holds back what does not fit, alone and together.
pub async fn every_filter_holds_back_what_does_not_fit(stage: &Stage) {
    let mut slow = new_run();
    slow.queue = "slow".to_owned();
    let mut refund = new_run();
    refund.workflow = "refund".to_owned();
    let named = keyed("order-1", 1, OnConflict::Existing);
    let ended = new_run();
    for run in [&slow, &refund, &named, &ended] {
        stage.start(run.clone()).await;
    }
    stage.store.cancel(ended.id).await.unwrap();
    let with = |set: fn(&mut Filter)| {
        let mut filter = Filter::default();
        set(&mut filter);
        listed(stage, filter)
    };
    let mut all = vec![slow.id, refund.id, named.id, ended.id];
    all.sort_by(|one, other| other.cmp(one));
    assert_eq!(with(|_| ()).await, all);
    assert_eq!(with(|it| it.workflow = Some("refund".into())).await, [refund.id]);
    assert_eq!(with(|it| it.queue = Some("slow".into())).await, [slow.id]);
    assert_eq!(with(|it| it.key = Some("order-1".into())).await, [named.id]);
    assert_eq!(with(|it| it.states = vec![RunState::Cancelled]).await, [ended.id]);
    let neither = with(|it| {
        it.queue = Some("slow".into());
        it.key = Some("order-1".into());
    });
    assert_eq!(neither.await, []);
}

/// A filter by time takes what was created at its beginning, and nothing from its end on.
pub async fn filter_by_time_includes_its_beginning_only(stage: &Stage) {
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(stage.start(new_run()).await);
        stage.pass(10);
    }
    let middle = Some(stage.run(runs[1]).await.created_at);
    let from = Filter { created_from: middle, ..Filter::default() };
    assert_eq!(listed(stage, from).await, [runs[2], runs[1]]);
    let before = Filter { created_before: middle, ..Filter::default() };
    assert_eq!(listed(stage, before).await, [runs[0]]);
}

/// A filter by parent finds the children of a run, whatever has become of them.
pub async fn children_are_found_by_their_parent(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let one = stage.start(child_of(lease, "$child/one")).await;
    let mut detached = child_of(lease, "$child/two");
    if let Some(parent) = &mut detached.parent {
        parent.detached = true;
    }
    let two = stage.start(detached).await;
    stage.start(new_run()).await;
    stage.store.cancel(one).await.unwrap();
    let children = || Filter { parent: Some(lease.run), ..Filter::default() };
    assert_eq!(listed(stage, children()).await, [two, one]);
    let open = Filter { states: vec![RunState::Queued], ..children() };
    assert_eq!(listed(stage, open).await, [two]);
    let none = Filter { parent: Some(one), ..Filter::default() };
    assert_eq!(listed(stage, none).await, []);
}

/// Tags are matched by name and value, and all of them must be there.
pub async fn every_tag_of_a_filter_must_fit(stage: &Stage) {
    let tags = |pairs: &[(&str, &str)]| -> std::collections::BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let tagged = |pairs: &[(&str, &str)]| NewRun { tags: tags(pairs), ..new_run() };
    let both = stage.start(tagged(&[("team", "search"), ("env", "prod")])).await;
    let one = stage.start(tagged(&[("team", "search")])).await;
    stage.start(tagged(&[("team", "sales")])).await;
    stage.start(tagged(&[("search", "team")])).await;
    stage.start(new_run()).await;
    let with = |pairs: &[(&str, &str)]| Filter { tags: tags(pairs), ..Filter::default() };
    assert_eq!(listed(stage, with(&[("team", "search")])).await, [one, both]);
    assert_eq!(listed(stage, with(&[("team", "search"), ("env", "prod")])).await, [both]);
    assert_eq!(listed(stage, with(&[("env", "search")])).await, []);
}

/// Pages go from the newest to the oldest, and runs that are added between two pages neither
/// shift nor repeat a row.
pub async fn pages_are_stable_while_runs_are_added(stage: &Stage) {
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(stage.start(new_run()).await);
    }
    runs.reverse();
    let mut query = Query { limit: 2, ..Query::default() };
    let mut seen = Vec::new();
    loop {
        let page = stage.store.list(query.clone()).await.unwrap();
        seen.extend(page.runs.iter().map(|run| run.id));
        stage.start(new_run()).await;
        query.before = seen.last().copied();
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, runs);
}

/// The last page that is exactly full says that no more follow.
pub async fn full_last_page_says_so(stage: &Stage) {
    for _ in 0..2 {
        stage.start(new_run()).await;
    }
    let query = Query { limit: 2, ..Query::default() };
    let page = stage.store.list(query).await.unwrap();
    assert_eq!((page.runs.len(), page.more), (2, false));
}

/// A page is bounded, whatever its limit says.
pub async fn page_is_bounded(stage: &Stage) {
    let runs = || (0..crate::limits::START_BATCH_MAX).map(|_| new_run()).collect();
    for _ in 0..=PAGE_ROWS_MAX / crate::limits::START_BATCH_MAX {
        stage.store.start(runs()).await.unwrap();
    }
    let query = Query { limit: usize::MAX, ..Query::default() };
    let page = stage.store.list(query).await.unwrap();
    assert_eq!((page.runs.len(), page.more), (PAGE_ROWS_MAX, true));
}

/// A history is read in pages, in order.
pub async fn history_comes_in_pages(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let records: Vec<_> = [9, 2, 5].map(|seq| done(seq, &format!("step {seq}"), 1)).into();
    stage.record(lease, records).await.unwrap();
    let first = stage.store.history(lease.run, None, 2).await.unwrap();
    assert_eq!((steps(&first.records), first.more), (vec![(2, "step 2"), (5, "step 5")], true));
    let second = stage.store.history(lease.run, Some(5), 2).await.unwrap();
    assert_eq!((steps(&second.records), second.more), (vec![(9, "step 9")], false));
    let beyond = stage.store.history(lease.run, Some(9), 2).await.unwrap();
    assert!(beyond.records.is_empty() && !beyond.more);
}

/// The history and the duplicates of a run that does not exist are not empty but absent.
pub async fn history_of_an_unknown_run_says_so(stage: &Stage) {
    let history = stage.store.history(RunId::new(), None, 10).await;
    assert!(matches!(history, Err(Error::NotFound)), "{history:?}");
    let duplicates = stage.store.duplicates(RunId::new()).await;
    assert!(matches!(duplicates, Err(Error::NotFound)), "{duplicates:?}");
}

/// Counts are by state and queue, and workers show what they hold.
pub async fn stats_count_runs_and_workers(stage: &Stage) {
    let worker = stage.worker().await;
    stage.running(&worker).await;
    stage.settled(&worker, End::Completed(json(1))).await;
    stage.settled(&worker, parked(0)).await;
    stage.start(new_run()).await;
    stage.start(NewRun { queue: "slow".into(), ..new_run() }).await;
    stage.start(NewRun { queue: "slow".into(), ..new_run() }).await;
    let stats = stage.store.stats().await.unwrap();
    let expected = [
        (RunState::Queued, 3),
        (RunState::Running, 1),
        (RunState::Waiting, 1),
        (RunState::Completed, 1),
    ];
    assert_eq!(stats.runs, expected.into());
    assert_eq!(stats.queued, [(QUEUE.to_owned(), 1), ("slow".to_owned(), 2)].into());
    let [info] = &stats.workers[..] else { panic!("one worker: {stats:?}") };
    assert_eq!((info.id, info.running), (worker.id, 1));
    assert_eq!((info.build.as_str(), info.place.as_str()), (BUILD, "stage"));
    assert_eq!(
        (&info.queues[..], &info.workflows[..]),
        (&[QUEUE.into()][..], &[WORKFLOW.into()][..])
    );
    assert_eq!(info.lease_until, stage.in_ms(LEASE_MS as u64));
    assert_eq!((info.concurrency, info.is_full()), (Some(CONCURRENCY), false));
}

/// A worker that was marked lost is not among the workers.
pub async fn stats_leave_out_lost_workers(stage: &Stage) {
    let (_lost, live) = stage.lost_worker().await;
    let workers = stage.store.stats().await.unwrap().workers;
    assert_eq!(stage.store.workers().await.unwrap(), workers, "the same without the counts");
    assert_eq!(workers.iter().map(|worker| worker.id).collect::<Vec<_>>(), [live.id]);
}

async fn listed(stage: &Stage, filter: Filter) -> Vec<RunId> {
    let query = Query { filter, before: None, limit: 100 };
    let page = stage.store.list(query).await.unwrap();
    assert!(!page.more);
    page.runs.iter().map(|run| run.id).collect()
}
