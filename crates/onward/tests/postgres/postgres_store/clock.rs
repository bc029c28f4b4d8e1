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
