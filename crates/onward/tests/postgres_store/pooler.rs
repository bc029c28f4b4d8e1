//! A pooler in transaction mode between the stores and the server. The conformance suite plays
//! through it too.

use std::time::{Duration, Instant};

use onward::store::*;

use crate::database;
use crate::stage::*;

async fn open(stage: &Stage) -> PostgresStore {
    let url = with(&database::pooler_url(), &format!("schema={}", stage.name()));
    PostgresStore::open(&url).await.unwrap()
}

/// Fails where a store takes a stray notification, which a pooler may hand to anybody, for a sign
/// that its own come through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_behind_a_pooler_looks_within_a_second() {
    let stage = Stage::new();
    let (here, there) = (open(&stage).await, open(&stage).await);
    drop((here.wait(Topic::Work), there.wait(Topic::Work)));
    // Longer than either waits for its own notification to come back.
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_secs(3) {
        started(&here).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..5 {
        let waiter = there.wait(Topic::Work);
        let run = started(&here).await;
        let answered = Instant::now();
        soon(waiter).await;
        let waited = answered.elapsed();
        assert!(waited < Duration::from_secs(1), "{waited:?}");
        assert!(there.get(Which::Id(run)).await.unwrap().is_some());
    }
}

/// Fails where a statement is prepared in one session and executed in another, or a setting or an
/// advisory lock is left in one. The pooler closes its sessions every second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_come_and_go_unnoticed() {
    let stage = Stage::new();
    let store = open(&stage).await;
    let worker = joined(&store).await;
    let began = Instant::now();
    let mut ticket = 0;
    while began.elapsed() < Duration::from_secs(4) {
        ticket += 1;
        started(&store).await;
        let lease = claimed(&store, worker, ticket).await;
        store.record(lease, vec![done(&store, 1, "a")]).await.unwrap();
        store.renew(worker).await.unwrap();
        store.settle(lease, Settle::new(vec![], End::Completed(json("1")))).await.unwrap();
    }
    store.leave(worker).await.unwrap();
}
