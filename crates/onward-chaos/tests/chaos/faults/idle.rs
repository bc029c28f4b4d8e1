//! No fault at all: how little a worker with nothing to do asks of the server.

use std::time::Duration;

use onward_chaos::server;
use tokio_postgres::Client;

use super::stage::{Stage, until};

/// So long that a busy machine is not late by a renewal.
const LEASE: Duration = Duration::from_secs(3);

const RENEWALS_PER_LEASE: u64 = 3;

/// Leases over which is counted, after the first, in which a worker comes to rest.
const LEASES: u64 = 3;

/// Returns when the only worker's lease was renewed so many times.
async fn renewed(raw: &Client, times: u64) {
    let sql = "select coalesce(max(lease_until), 0) from onward.workers";
    let read = async || raw.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let mut last = read().await;
    for _ in 0..times {
        let before = last;
        until("the lease is renewed", || async { read().await > before }).await;
        last = read().await;
    }
}

/// Fails where an idle worker asks anything more often than once a lease, but for its renewals. By
/// renewals and not by time: at the default lease these are 18 of 27 statements a minute.
#[tokio::test]
async fn idle_worker_renews_and_asks_once_a_lease_besides() {
    let stage = Stage::shared().await;
    let raw = server::connect(stage.url()).await.unwrap();
    let worker = stage.worker(LEASE).await;
    renewed(&raw, RENEWALS_PER_LEASE + 1).await;
    let before = stage.proxy.counts().answered;
    renewed(&raw, LEASES * RENEWALS_PER_LEASE).await;
    let asked = stage.proxy.counts().answered - before;
    worker.shutdown().await.unwrap();
    let renewals = LEASES * RENEWALS_PER_LEASE;
    assert!(asked >= renewals, "{asked}: the renewals themselves are not seen");
    // A sweep a lease, one more for where the counting began, and one look for work.
    assert!(asked <= renewals + LEASES + 2, "{asked} statements over {renewals} renewals");
}
