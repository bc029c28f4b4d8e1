//! An answered write is on disk: settings that break this are refused, and a server that crashes
//! right after an answer has what it answered.

use std::sync::Arc;

use onward::store::*;
use onward::{Code, RunId, RunState};

use super::cluster::Cluster;
use super::stage::*;
use crate::database;

async fn refused(url: &str) -> onward::Error {
    PostgresStore::open(url).await.unwrap_err()
}

#[tokio::test]
async fn a_database_that_answers_before_it_syncs_is_refused() {
    let lax = Database::with("synchronous_commit = off").await;
    let error = refused(&lax.url()).await;
    assert_eq!(error.code(), Code::StoreNotDurable);
    assert!(error.to_string().contains("synchronous_commit is off"), "{error}");
}

/// Fails where the fence waits and reads in statements of one old snapshot: a default that a
/// database may have.
#[tokio::test]
async fn a_database_whose_transactions_keep_a_snapshot_is_refused() {
    for level in ["repeatable read", "serializable"] {
        let old = Database::with(&format!("default_transaction_isolation = '{level}'")).await;
        let error = refused(&old.url()).await;
        assert_eq!(error.code(), Code::InvalidOption, "{error}");
        assert!(error.to_string().contains("default_transaction_isolation"), "{error}");
    }
}

/// A setting that changes later is noticed by the fence itself.
#[tokio::test]
async fn a_write_under_an_old_snapshot_is_refused() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let raw = stage.raw().await;
    raw.batch_execute("begin isolation level repeatable read").await.unwrap();
    let ask = format!("select assert_live('{:032x}')", worker.as_u128());
    let error = raw.query(&ask, &[]).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "OW004");
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_refused() {
    let cluster = Cluster::new("fsync = off");
    let error = refused(&cluster.url()).await;
    assert_eq!(error.code(), Code::StoreNotDurable);
    assert!(error.to_string().contains("fsync is off"), "{error}");
}

/// A server that writes nothing on its own for a long time, so that only what a commit waited for
/// is on disk when it crashes; and that was told after the store was opened to wait for nothing.
struct Fragile {
    cluster: Cluster,
    store: Arc<PostgresStore>,
}

impl Fragile {
    async fn new() -> Self {
        let settings = "wal_writer_delay = 10s\nbgwriter_delay = 10s\nautovacuum = off";
        let cluster = Cluster::new(settings);
        let store = Arc::new(PostgresStore::open(&cluster.url()).await.unwrap());
        let raw = database::connect_to(&cluster.url()).await;
        raw.batch_execute("alter system set synchronous_commit = off").await.unwrap();
        raw.batch_execute("select pg_reload_conf()").await.unwrap();
        until("the setting is off", async || {
            let row = raw.query_one("show synchronous_commit", &[]).await.unwrap();
            row.get::<_, String>(0) == "off"
        })
        .await;
        Self { cluster, store }
    }

    /// Takes the server down, and gives the run as the server has it when it is up again.
    async fn crashed(&mut self, run: RunId) -> onward::Run {
        self.cluster.crash();
        self.cluster.start();
        let found = until_some(async || self.store.get(Which::Id(run)).await.ok()).await;
        found.unwrap_or_else(|| panic!("run {run} is gone"))
    }
}

/// What a connection to a server that just came up gives, at the second try if not at the first.
async fn until_some<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..20 {
        if let Some(answer) = ask().await {
            return answer;
        }
    }
    panic!("the server does not answer");
}

/// Fails where `synchronous_commit` is looked at when the store is opened and trusted afterwards.
#[tokio::test]
async fn what_was_answered_is_there_after_a_crash() {
    let mut play = Fragile::new().await;
    let store = Arc::clone(&play.store);
    let worker = joined(&store).await;
    let run = started(&store).await;
    assert_eq!(play.crashed(run).await.state, RunState::Queued);

    let worker = match store.renew(worker).await {
        Ok(_) => worker,
        Err(_) => joined(&store).await,
    };
    let lease = claimed(&store, worker, 1).await;
    assert_eq!(play.crashed(run).await.state, RunState::Running);

    until_some(async || store.record(lease, vec![done(&store, 1, "a")].into()).await.ok()).await;
    assert_eq!(play.crashed(run).await.state, RunState::Running);
    let history = store.history(run, None, 10).await.unwrap();
    assert_eq!(history.records.len(), 1);

    let at = onward::Timestamp::from_millis(store.clock().now().as_millis() - 1_000);
    let waits_for = onward::Waits::Timer { step: "t".to_owned() };
    let park = End::Parked { wake_at: Some(at), waits_for, wakes_seen: 0 };
    settled(&store, lease, park).await;
    assert_eq!(play.crashed(run).await.state, RunState::Waiting);

    let lease = claimed_again(&store, worker).await;
    let stuck = End::Stuck { code: Code::HistoryMismatch, detail: "x".into(), wakes_seen: 1 };
    settled(&store, lease, stuck).await;
    assert_eq!(play.crashed(run).await.stuck_builds, ["b1"]);

    until_some(async || store.cancel(run).await.ok()).await;
    assert!(play.crashed(run).await.cancel_at.is_some());
}

/// A settle, repeated where its connection was lost with the server.
async fn settled(store: &PostgresStore, lease: Lease, end: End) {
    let settle = Settle::new(vec![], end);
    until_some(async || store.settle(lease, settle.clone()).await.ok()).await;
}

async fn claimed_again(store: &PostgresStore, worker: onward::WorkerId) -> Lease {
    let claims = until_some(async || store.claim(claim_of(worker, 2)).await.ok()).await;
    claims.runs[0].lease
}

/// A standby that no commit waits for is told of, however little the role may see of it; one that commits wait
/// for is not.
#[tokio::test]
async fn a_standby_that_no_commit_waits_for_is_counted() {
    let primary = Cluster::new("wal_level = replica");
    let store = PostgresStore::open(&primary.url()).await.unwrap();
    let unawaited = async || store.unawaited_standbys().await.unwrap();
    assert_eq!(unawaited().await, 0);
    let _standby = primary.standby();
    until("it streams", async || unawaited().await == 1).await;
    let raw = database::connect_to(&primary.url()).await;
    raw.batch_execute("create role lowly login").await.unwrap();
    let lowly = database::connect_to(&primary.url().replace("onward@", "lowly@")).await;
    let sql = include_str!("../../../src/store/postgres/sql/stats_standbys.sql");
    assert_eq!(lowly.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
    raw.batch_execute("alter system set synchronous_standby_names = '*'").await.unwrap();
    raw.batch_execute("select pg_reload_conf()").await.unwrap();
    until("commits wait", async || unawaited().await == 0).await;
}
