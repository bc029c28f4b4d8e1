//! Rows that cannot be read: each harms its own run, and no other.

use std::time::Duration;

use onward::store::*;
use onward::{RunId, RunState, Waits};

use super::stage::*;

/// Makes a run's tags unreadable, and with them the run.
async fn damage(raw: &tokio_postgres::Client, run: RunId) {
    let sql = format!("update inputs set tags = '[' where run = {}", literal(run));
    assert_eq!(raw.execute(&sql, &[]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_corrupt_run_is_set_aside_and_the_others_go_on() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let (bad, good) = (started(&store).await, started(&store).await);
    let raw = stage.raw().await;
    damage(&raw, bad).await;
    let claims = store.claim(claim_of(worker, 1)).await.unwrap();
    let taken: Vec<_> = claims.runs.iter().map(|claimed| claimed.lease.run).collect();
    assert_eq!((taken, claims.more), (vec![good], false));
    assert!(matches!(store.get(Which::Id(bad)).await.unwrap_err(), Error::Corrupt(_)));
    let listed = store.list(Query { limit: 10, ..Query::default() }).await.unwrap().runs;
    let shown = listed.iter().find(|run| run.id == bad).unwrap();
    assert_eq!(shown.state, RunState::Waiting);
    let waits_for = shown.waits_for.as_ref();
    assert!(matches!(waits_for, Some(Waits::Stuck { code, .. }) if code == "corrupt_record"));

    // Not mended by a build that met it already.
    store.sweep(sweep_of(worker)).await.unwrap();
    assert!(store.claim(claim_of(worker, 2)).await.unwrap().runs.is_empty());
    raw.execute("update inputs set tags = null", &[]).await.unwrap();
    assert_eq!(store.retry(bad).await.unwrap().state, RunState::Queued);
    assert_eq!(claimed(&store, worker, 3).await.run, bad);
}

/// Fails where what a claim cannot read is set aside without the fence: the run is another's by then,
/// or will be.
#[tokio::test]
async fn a_corrupt_run_is_not_set_aside_with_stale_lease() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let run = started(&store).await;
    let (raw, inputs) = (stage.raw().await, stage.raw().await);
    damage(&raw, run).await;
    // A claim takes runs by their own table, and then reads what belongs to them.
    inputs.batch_execute("begin; lock table inputs in access exclusive mode").await.unwrap();
    let claims = store.claim(claim_of(worker, 1));
    stage.waiting(1).await;
    raw.execute("update workers set lost_at = 1", &[]).await.unwrap();
    let_go(&inputs).await;
    assert!(matches!(soon(claims).await.unwrap_err(), Error::LeaseLost));
    let sql = format!("select state, stuck from runs where id = {}", literal(run));
    let row = raw.query_one(&sql, &[]).await.unwrap();
    let (state, stuck): (String, Option<String>) = (row.get(0), row.get(1));
    assert_eq!((state.as_str(), stuck), ("running", None));
}

/// Fails where one run that cannot be read undoes the batch that deletes it: the oldest come first, so
/// it would be met each time.
#[tokio::test]
async fn a_corrupt_run_is_pruned_with_the_others() {
    let stage = Stage::new();
    let store = stage.open().await;
    let raw = stage.raw().await;
    let mut tagged = new_run();
    tagged.tags.insert("shop".to_owned(), "north".to_owned());
    let bad = start(&store, tagged.clone()).await;
    tagged.id = RunId::new();
    let good = start(&store, tagged).await;
    for run in [bad, good] {
        store.cancel(run).await.unwrap();
    }
    damage(&raw, bad).await;
    let pruned = store.prune(Prune::older_than(Duration::ZERO)).await.unwrap();
    assert_eq!(pruned, Pruned { runs: 2, more: false });
    let left: i64 = raw.query_one("select count(*) from tags", &[]).await.unwrap().get(0);
    assert_eq!(left, 1, "only what is not known to be the run's");
    let tag = [("shop".to_owned(), "north".to_owned())].into();
    let filter = Filter { tags: tag, ..Filter::default() };
    let listed = store.list(Query { filter, limit: 10, ..Query::default() }).await.unwrap();
    assert!(listed.runs.is_empty());
}

fn child_of(lease: Lease, step: &str) -> NewRun {
    let parent = NewParent { lease, step: step.to_owned(), detached: false };
    NewRun { parent: Some(parent), queue: "elsewhere".to_owned(), ..new_run() }
}

/// Fails where a sweep stops at a child that it cannot read: nobody's runs were taken over any more.
#[tokio::test]
async fn a_corrupt_child_of_a_cancelled_run_holds_up_no_sweep() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let bad = start(&store, child_of(lease, "$child/a")).await;
    let good = start(&store, child_of(lease, "$child/b")).await;
    let raw = stage.raw().await;
    damage(&raw, bad).await;
    store.cancel(lease.run).await.unwrap();
    while store.sweep(sweep_of(worker)).await.unwrap().more {}
    let good = store.get(Which::Id(good)).await.unwrap().unwrap();
    assert_eq!(good.state, RunState::Cancelled);
    let sql = format!("select cancel_at is not null from runs where id = {}", literal(bad));
    assert!(raw.query_one(&sql, &[]).await.unwrap().get::<_, bool>(0), "it is asked all the same");
}

/// Fails where the database reads as JSON what only may be: a detail with a NUL is none to it.
#[tokio::test]
async fn what_a_run_is_stuck_with_may_hold_anything() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let child = start(&store, child_of(lease, "$child/a")).await;
    let detail = "a\u{0}b \u{1F600}".to_owned();
    let end = End::Stuck { code: onward::Code::HistoryMismatch, detail, wakes_seen: 0 };
    store.settle(lease, Settle::new(vec![], end)).await.unwrap();
    let body = json("1");
    let signal = NewSignal {
        run: lease.run,
        name: "go".to_owned(),
        step: "$signal/go".to_owned(),
        key: "k".to_owned(),
        fingerprint: body.fingerprint(),
        body,
    };
    store.signal(signal).await.unwrap();
    store.cancel(child).await.unwrap();
    assert_eq!(store.inbox(lease.run, 0).await.unwrap().signals.len(), 2, "the child's end too");
}

/// Fails where a claim stops at a signal that it cannot read.
#[tokio::test]
async fn a_corrupt_signal_sets_its_run_aside_and_the_others_go_on() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let (bad, good) = (started(&store).await, started(&store).await);
    let body = json("1");
    let (name, step) = ("go".to_owned(), "$signal/go".to_owned());
    let fingerprint = body.fingerprint();
    let signal = NewSignal { run: bad, name, step, key: "k".to_owned(), fingerprint, body };
    store.signal(signal).await.unwrap();
    let raw = stage.raw().await;
    raw.batch_execute("update signals set fingerprint = '\\x01'").await.unwrap();
    let claims = store.claim(claim_of(worker, 1)).await.unwrap();
    let taken: Vec<_> = claims.runs.iter().map(|claimed| claimed.lease.run).collect();
    assert_eq!(taken, [good]);
    let bad = store.get(Which::Id(bad)).await.unwrap().unwrap();
    assert!(matches!(bad.waits_for, Some(Waits::Stuck { .. })), "{bad:?}");
}

/// Fails where those that cannot be read take the places of those behind them.
#[tokio::test]
async fn corrupt_schedules_hold_up_none_behind_them() {
    let stage = Stage::new();
    let store = stage.open().await;
    for number in 0..40 {
        store.put_schedule(hourly(&format!("s{number:02}"))).await.unwrap();
    }
    store.put_schedule(hourly("t")).await.unwrap();
    let raw = stage.raw().await;
    raw.batch_execute("update schedules set spec = '[' where name < 't'").await.unwrap();
    let due = store.due_schedules(None, 32).await.unwrap().schedules;
    let names: Vec<_> = due.iter().map(|schedule| schedule.name.as_str()).collect();
    assert_eq!(names, ["t"]);
    let page = store.list_schedules(None, 32).await.unwrap();
    assert_eq!((&page.schedules, page.more), (&due, false));
    assert_eq!(page.unreadable.len(), 40);

    // Page by page, each is named once.
    raw.batch_execute(
        "update schedules set spec = (select spec from schedules where name = 't')
                       where name in ('s05', 's20', 's30')",
    )
    .await
    .unwrap();
    let (mut after, mut names, mut unreadable) = (None, Vec::new(), Vec::new());
    loop {
        let page = store.list_schedules(after.take(), 2).await.unwrap();
        names.extend(page.schedules.into_iter().map(|schedule| schedule.name));
        unreadable.extend(page.unreadable);
        if !page.more {
            break;
        }
        after = names.last().cloned();
    }
    assert_eq!(names, ["s05", "s20", "s30", "t"]);
    assert_eq!(unreadable.len(), 37);
    assert!(unreadable.is_sorted_by(|a, b| a < b), "{unreadable:?}");
}
