//! A pooler in transaction mode between the stores and the server. The conformance suite plays
//! through it too.

use std::time::{Duration, Instant};

use onward::store::*;
use onward::{Ctx, Failure, Onward, Workflow};

use super::stage::*;
use crate::database;

/// A URL that puts a store there, through the pooler.
fn url(stage: &Stage) -> String {
    with(&database::pooler_url(), &format!("schema={}", stage.name()))
}

async fn open(stage: &Stage) -> PostgresStore {
    PostgresStore::open(&url(stage)).await.unwrap()
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
        store.record(lease, vec![done(&store, 1, "a")].into()).await.unwrap();
        store.renew(worker).await.unwrap();
        store.settle(lease, Settle::new(vec![], End::Completed(json("1")))).await.unwrap();
    }
    store.leave(worker).await.unwrap();
}

const SHIP: Workflow<String, u32> = Workflow::named("ship");

/// Packs a parcel, and notes it in this table.
async fn ship(ctx: Ctx, notes: String) -> Result<u32, Failure> {
    let parcel = ctx.step("pack", async |_| Ok::<u32, Failure>(7)).await?;
    let noted = ctx.postgres_transaction("note", move |db, _| {
        let insert = format!("insert into {notes} values ({parcel})");
        async move {
            db.batch_execute(&insert).await?;
            Ok::<u32, Failure>(parcel)
        }
    });
    noted.await
}

/// Fails where a worker, a transactional step, or a start in a transaction of the user's own needs
/// more of a session than one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_serves_behind_a_pooler() {
    let stage = Stage::new();
    let onward = Onward::open(&url(&stage)).await.unwrap();
    let raw = stage.raw().await;
    raw.batch_execute("create table notes (parcel integer not null)").await.unwrap();
    let notes = format!("{}.notes", stage.name());
    let worker = onward.worker().serve(SHIP, ship).start().await.unwrap();
    let outside = onward.start(SHIP, &notes).await.unwrap();
    assert_eq!(soon(outside.result()).await.unwrap(), 7);

    let mut db = database::connect_to(&database::pooler_url()).await;
    let tx = db.transaction().await.unwrap();
    let inside = onward.start(SHIP, &notes).in_postgres(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(soon(inside.result()).await.unwrap(), 7);

    for run in [outside, inside] {
        let history = run.history().await.unwrap();
        let steps: Vec<_> = history.iter().map(|record| record.step.as_str()).collect();
        assert_eq!(steps, ["pack", "note"]);
    }
    let noted = raw.query_one("select count(*) from notes", &[]).await.unwrap();
    assert_eq!(noted.get::<_, i64>(0), 2);
    worker.shutdown().await.unwrap();
}
