//! A failover to a replica that lagged: the database forgets the last moments, as a test makes it
//! forget them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::{Ctx, Failure, Onward, Workflow};

use crate::stage::*;

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
