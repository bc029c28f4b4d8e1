//! A failover to a replica that lagged: the database forgets the last moments, as a test makes it
//! forget them. And hosts and connections that are silent, which is how one begins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::store::{PostgresStore, Store, Which};
use onward::{Ctx, Failure, Onward, Workflow};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::stage::*;

const WAIT: Workflow<(), u32> = Workflow::named("wait");

/// Counts the bodies that execute.
struct Inside(Arc<AtomicU32>);

impl Inside {
    fn enter(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Fails where a worker executes whatever it claims: the claim that was forgotten is made again with
/// the same attempt, and both executions could write under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_the_store_forgot_is_not_executed_beside_itself() {
    let stage = Stage::new();
    let onward = Onward::open(&stage.url()).await.unwrap();
    let (inside, begun) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (bodies, tries) = (Arc::clone(&inside), Arc::clone(&begun));
    let wait = move |ctx: Ctx, ()| {
        let (bodies, tries) = (Arc::clone(&bodies), Arc::clone(&tries));
        async move {
            ctx.step("wait", |_| async {
                let _inside = Inside::enter(&bodies);
                if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>(tries.load(Ordering::SeqCst))
            })
            .await
        }
    };
    let worker = onward.worker().serve(WAIT, wait).start().await.unwrap();
    let run = onward.start(WAIT, &()).await.unwrap();
    until("the body waits", async || inside.load(Ordering::SeqCst) == 1).await;
    let raw = stage.raw().await;
    let before =
        raw.query_one("select worker from runs", &[]).await.unwrap().get::<_, uuid::Uuid>(0);
    let forget = "update runs set state = 'queued', attempt = attempt - 1, worker = null,
                      ticket = null, due_at = 0, started_at = null";
    raw.batch_execute(forget).await.unwrap();

    assert_eq!(soon(run.result()).await.unwrap(), 2);
    until("no body is left", async || inside.load(Ordering::SeqCst) == 0).await;
    let live = raw.query_one("select id from workers where lost_at is null", &[]).await.unwrap();
    assert_ne!(live.get::<_, uuid::Uuid>(0), before, "it joined under a new id");
    assert_eq!(run.history().await.unwrap().len(), 1);
    worker.shutdown().await.unwrap();
}

/// Fails where one limit is for all hosts: a machine that lost its power is silent, and uses it up.
#[tokio::test]
async fn a_silent_host_does_not_hide_the_next() {
    let stage = Stage::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = silent.local_addr().unwrap();
    let url = with(&stage.url().replacen('@', &format!("@{here},"), 1), "connect_timeout=1");
    let store = soon(PostgresStore::open(&url)).await.unwrap();
    let run = started(&store).await;
    assert!(store.get(Which::Id(run)).await.unwrap().is_some());
}

/// Fails where a renewal waits for a connection that will never answer until it is given up: by then
/// the lease is over, though another connection would have answered at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_past_a_dead_connection() {
    let stage = Stage::new();
    let base = stage.base();
    let (before, rest) = base.split_once('@').unwrap();
    let (server, after) = rest.split_once('/').unwrap();
    let way = Way::to(server).await;
    let url = format!("{before}@{}/{after}", way.address);
    let url = with(&with(&url, &format!("schema={}", stage.name())), "statement_timeout=60");
    let store = PostgresStore::open(&url).await.unwrap();
    let worker = joined(&store).await;
    store.renew(worker).await.unwrap();
    way.forget();
    soon(store.renew(worker)).await.unwrap();
}

/// A way to a server that can forget its connections, as a firewall does: they stay open, and nothing
/// passes any more. Those that come later pass.
struct Way {
    address: SocketAddr,
    forgotten: watch::Sender<u32>,
}

impl Way {
    async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (forgotten, forgets) = watch::channel(0);
        let (address, server) = (listener.local_addr().unwrap(), server.to_owned());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = TcpStream::connect(&server).await.unwrap();
                let mut forgets = forgets.clone();
                forgets.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = forgets.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, forgotten }
    }

    fn forget(&self) {
        self.forgotten.send_modify(|times| *times += 1);
    }
}
