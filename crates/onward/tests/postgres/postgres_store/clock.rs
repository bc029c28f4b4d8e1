//! Times come from the database. Its clock is set apart from the machine's by a time function of
//! the test's own.

use onward::Clock as _;
use onward::store::*;
use onward::{RunState, SystemClock};
use tokio_postgres::Client;

use super::stage::*;

const HOUR_MS: i64 = 3_600_000;

/// Sets the schema's clock ahead of the machine's, or behind.
async fn set_ahead(raw: &Client, ms: i64) {
    let sql = format!(
        "create or replace function now_ms(given bigint) returns bigint
         language sql volatile as $$
             select coalesce(given, (extract(epoch from clock_timestamp()) * 1000)::bigint + {ms})
         $$"
    );
    raw.batch_execute(&sql).await.unwrap();
}

fn ahead_ms(time: onward::Timestamp) -> i64 {
    time.as_millis() - SystemClock.now().as_millis()
}

/// Fails where any side judges a lease by its machine's clock: an hour apart, every lease would
/// have expired, or none would ever.
#[tokio::test]
async fn leases_are_judged_by_the_databases_time_alone() {
    for apart in [-HOUR_MS, HOUR_MS] {
        let stage = Stage::new();
        drop(stage.open().await);
        let raw = stage.raw().await;
        set_ahead(&raw, apart).await;
        let store = stage.open().await;
        let (first, second) = (joined(&store).await, joined(&store).await);
        let run = started(&store).await;
        claimed(&store, first, 1).await;
        assert!(store.sweep(sweep_of(second)).await.unwrap().lost.is_empty());

        set_ahead(&raw, apart + 11_000).await;
        let until = store.renew(second).await.unwrap().until;
        assert!((ahead_ms(until) - apart - 21_000).abs() < 2_000, "{until}");
        let swept = store.sweep(sweep_of(second)).await.unwrap();
        assert_eq!((swept.lost, swept.taken), (vec![first], vec![run]));
    }
}

/// Fails where what is old, due or expired is judged by the offset that this process measured when it opened the
/// store: a clock that was corrected since made a prune delete runs that had just ended.
#[tokio::test]
async fn what_is_old_or_due_is_judged_by_the_databases_time_now() {
    let stage = Stage::new();
    drop(stage.open().await);
    let raw = stage.raw().await;
    set_ahead(&raw, 40 * 24 * HOUR_MS).await;
    // It believes for good that the database is far ahead.
    let store = stage.open().await;
    set_ahead(&raw, 0).await;
    let worker = joined(&store).await;
    let expires = NewKey { ttl_ms: Some(HOUR_MS), ..keyed_run("k").key.unwrap() };
    let run = start(&store, NewRun { key: Some(expires), ..keyed_run("k") }).await;
    let by_key = Which::Key { workflow: WORKFLOW.to_owned(), key: "k".to_owned() };
    assert_eq!(store.get(by_key).await.unwrap().map(|run| run.id), Some(run), "it is not expired");
    let lease = claimed(&store, worker, 1).await;
    store.settle(lease, Settle::new(vec![], End::Completed(json("1")))).await.unwrap();
    let month = Prune::older_than(std::time::Duration::from_secs(30 * 24 * 3_600));
    assert_eq!(store.prune(month.clone().dry_run()).await.unwrap().runs, 0);
    assert_eq!(store.prune(month.clone()).await.unwrap().runs, 0, "it has just ended");
    assert!(store.get(Which::Id(run)).await.unwrap().is_some());
    let in_an_hour = onward::Timestamp::from_millis(SystemClock.now().as_millis() + HOUR_MS);
    let put = PutSchedule { next_at: Some(in_an_hour), ..hourly("later") };
    store.put_schedule(put).await.unwrap();
    let due = store.due_schedules(None, 10).await.unwrap();
    assert!(due.schedules.is_empty() && due.next_at.is_some(), "{due:?}");
    assert!(store.release_run_key(run).await.unwrap(), "the key is its own");
    set_ahead(&raw, 31 * 24 * HOUR_MS).await;
    assert_eq!(store.prune(month).await.unwrap().runs, 1);
}

/// Fails where a start's delay or a record's time is taken from the machine.
#[tokio::test]
async fn a_store_tells_the_databases_time() {
    let stage = Stage::new();
    drop(stage.open().await);
    let raw = stage.raw().await;
    set_ahead(&raw, HOUR_MS).await;
    let store = stage.open().await;
    let near = |time| (ahead_ms(time) - HOUR_MS).abs() < 2_000;
    assert!(near(store.clock().now()));
    let later = NewRun { start_at: StartAt::After(60_000), ..new_run() };
    let id = later.id;
    let started = store.start(vec![later]).await.unwrap().remove(0).unwrap();
    assert!(near(started.at));
    let run = store.get(Which::Id(id)).await.unwrap().unwrap();
    assert_eq!(run.state, RunState::Waiting);
    assert_eq!(run.due_at.unwrap().as_millis(), run.created_at.as_millis() + 60_000);

    // The clock moves while the store is open: each renewal measures it again.
    let worker = joined(&store).await;
    set_ahead(&raw, -HOUR_MS).await;
    store.renew(worker).await.unwrap();
    assert!((ahead_ms(store.clock().now()) + HOUR_MS).abs() < 2_000);
}
