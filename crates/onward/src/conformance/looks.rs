//! Looks at keys: by prefix, the most duplicated, and starts with another input; and at ends.
//!
//! A store that has no such looks passes by having no answer.

use super::stage::*;
use crate::store::{End, EndLook, Ends, KeyLook, Minute, NewRun};
use crate::{Failure, OnConflict, RunId, RunState, Timestamp};

/// Keys come by what they begin with, page by page, and no key is passed over between pages.
pub async fn run_keys_come_by_prefix_in_pages(stage: &Stage) {
    let Some(looks) = stage.store.looks() else { return };
    for key in ["order-2", "order-1", "Order-1", "order", "order-3", "ordér", "bill-1", "order%"] {
        stage.start(keyed(key, 1, OnConflict::Existing)).await;
    }
    stage.start(new_run()).await;
    let look = |prefix: &str, limit| KeyLook { prefix: prefix.into(), limit, ..KeyLook::default() };
    let mut found = Vec::new();
    let mut next = look("order-", 2);
    loop {
        let page = looks.run_keys(next.clone()).await.unwrap();
        next.after = page.keys.last().map(|key| (key.key.clone(), key.run));
        found.extend(page.keys.into_iter().map(|key| key.key));
        if !page.more {
            break;
        }
    }
    assert_eq!(found, ["order-1", "order-2", "order-3"]);
    let all = looks.run_keys(look("", 100)).await.unwrap();
    assert_eq!((all.keys.len(), all.more), (8, false));
    let none = looks.run_keys(look("order-4", 100)).await.unwrap();
    assert!(none.keys.is_empty());
}

/// A key of two workflows is two keys, and a look can ask for one of them.
pub async fn run_keys_are_told_apart_by_workflow(stage: &Stage) {
    let Some(looks) = stage.store.looks() else { return };
    let first = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let refund = keyed("order-1", 2, OnConflict::Existing);
    let refund = stage.start(NewRun { workflow: "refund".into(), ..refund }).await;
    let look = KeyLook { prefix: "order-1".into(), limit: 10, ..KeyLook::default() };
    let both = looks.run_keys(look.clone()).await.unwrap().keys;
    assert_eq!(both.iter().map(|key| key.run).collect::<Vec<_>>(), [first, refund]);
    assert!(both.iter().all(|key| key.held));
    let workflow = Some("refund".to_owned());
    let one = looks.run_keys(KeyLook { workflow, ..look }).await.unwrap().keys;
    assert_eq!(one.iter().map(|key| key.run).collect::<Vec<_>>(), [refund]);
}

/// The run with the most suppressed starts is first, and runs without any are left out.
pub async fn top_keys_are_the_most_duplicated(stage: &Stage) {
    let Some(looks) = stage.store.looks() else { return };
    for (key, starts) in [("a", 1), ("b", 4), ("c", 2)] {
        for _ in 0..starts {
            stage.try_start(keyed(key, 1, OnConflict::Existing)).await.unwrap();
        }
    }
    let top = looks.top_keys(10).await.unwrap();
    let seen: Vec<_> = top.iter().map(|key| (key.key.as_str(), key.duplicates)).collect();
    assert_eq!(seen, [("b", 3), ("c", 1)]);
    assert_eq!(looks.top_keys(1).await.unwrap().len(), 1);
}

/// Starts with another input are told newest first, with the run that has the key.
pub async fn key_conflicts_come_newest_first(stage: &Stage) {
    let Some(looks) = stage.store.looks() else { return };
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    stage.try_start(keyed("order-1", 1, OnConflict::Existing)).await.unwrap();
    let mut times = Vec::new();
    for input in 2..5 {
        stage.pass(10);
        times.insert(0, stage.now());
        stage.try_start(keyed("order-1", input, OnConflict::Existing)).await.unwrap_err();
    }
    let first = looks.key_conflicts(None, 2).await.unwrap();
    assert!(first.more);
    let before = first.conflicts.last().map(|conflict| conflict.no);
    let rest = looks.key_conflicts(before, 2).await.unwrap();
    assert!(!rest.more);
    let all: Vec<_> = first.conflicts.into_iter().chain(rest.conflicts).collect();
    assert_eq!(all.iter().map(|it| it.at).collect::<Vec<_>>(), times);
    assert!(all.iter().all(|it| it.run == run && it.key == "order-1"));
    let key = looks.top_keys(1).await.unwrap().remove(0);
    assert_eq!((key.duplicates, key.conflicts), (4, 3));
}

/// Starts and ends are counted in the minutes in which they fell, failures apart.
pub async fn runs_are_counted_by_the_minute(stage: &Stage) {
    let Some(looks) = stage.store.looks() else { return };
    let before = stage.start(new_run()).await;
    stage.store.cancel(before).await.unwrap();
    stage.pass(3 * 60_000);
    let since = stage.now();
    let worker = stage.worker().await;
    let done = stage.running(&worker).await;
    stage.settle(done, End::Completed(json(1))).await.unwrap();
    let failed = End::Failed { failure: Failure::fatal("no"), step: None };
    stage.settled(&worker, failed).await;
    stage.pass(60_000);
    let cancelled = stage.start(new_run()).await;
    stage.store.cancel(cancelled).await.unwrap();
    let ended_at = stage.now();
    let minutes = looks.minutes(since).await.unwrap();
    let at = |time: Timestamp| time.as_millis() / 60_000 * 60_000;
    let started: u64 = minutes.iter().map(|minute| minute.started).sum();
    let ended: u64 = minutes.iter().map(|minute| minute.ended).sum();
    let failed: u64 = minutes.iter().map(|minute| minute.failed).sum();
    assert_eq!((started, ended, failed), (3, 3, 1), "{minutes:?}");
    let last = Minute { at: at(ended_at), started: 1, ended: 1, failed: 0 };
    assert_eq!(minutes.last(), Some(&last));
    assert_eq!(minutes.first().map(|minute| minute.at), Some(at(since)));
}

/// Whoever goes on from the last end that was counted counts each once, of its kind and before its
/// time, also where many ended in the same moment.
pub async fn ends_are_counted_once_from_one_to_the_next(stage: &Stage) {
    let Some(looks) = stage.store.looks() else { return };
    let before = stage.start(new_run()).await;
    stage.store.cancel(before).await.unwrap();
    stage.pass(1_000);
    let began = stage.now();
    let worker = stage.worker().await;
    let failed = End::Failed { failure: Failure::fatal("no"), step: None };
    stage.settled(&worker, failed).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let run = stage.start(new_run()).await;
        stage.store.cancel(run).await.unwrap();
        ids.push(run);
    }
    ids.sort_unstable();
    let ended_at = stage.now();
    stage.pass(1_000);
    let late = stage.start(new_run()).await;
    stage.store.cancel(late).await.unwrap();
    let first = (began, RunId::from_u128(0));
    let look = EndLook { state: RunState::Cancelled, after: first, before: stage.now(), limit: 2 };
    let mut after = first;
    for (number, last) in [(2, Some(ids[1])), (2, Some(ids[3])), (1, Some(ids[4])), (0, None)] {
        let ends = looks.ends(EndLook { after, ..look }).await.unwrap();
        let last = last.map(|id| (ended_at, id));
        assert_eq!(ends, Ends { number, last, more: number == 2 });
        after = last.unwrap_or(after);
    }
    let all = EndLook { limit: 100, ..look };
    let failures = looks.ends(EndLook { state: RunState::Failed, ..all }).await.unwrap();
    assert_eq!((failures.number, failures.more), (1, false));
    let completed = looks.ends(EndLook { state: RunState::Completed, ..all }).await.unwrap();
    assert_eq!(completed, Ends::default());
    stage.pass(1);
    let rest = looks.ends(EndLook { after, before: stage.now(), ..all }).await.unwrap();
    assert_eq!((rest.number, rest.last.map(|last| last.1)), (1, Some(late)));
}
