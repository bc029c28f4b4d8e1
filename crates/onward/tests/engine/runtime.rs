//! Workers and their callers on several tokio runtimes: what is a worker's lives as long as the worker.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, RunId, RunState, Workflow};
use tokio::sync::Notify;

use crate::stores::on_each_store;

const HOLD: Workflow<u32, u32> = Workflow::named("hold");

/// Only there so that a fault does not hang the suite.
const DEADLINE: Duration = Duration::from_secs(20);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else { panic!("{what}") };
    value
}

/// Executes something on a runtime that ends with it, as a program does that blocks on each request.
async fn on_its_own_runtime<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let done = tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work)
    });
    done.await.unwrap()
}

/// A worker whose runs execute a step until the gate is opened.
struct Scene {
    onward: Onward,
    worker: onward::Worker,
    began: Arc<Notify>,
    gate: Arc<Notify>,
}

impl Scene {
    async fn new(onward: Onward) -> Self {
        let (began, gate) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let (begins, opens) = (Arc::clone(&began), Arc::clone(&gate));
        let worker = onward.worker().cancel_grace(Duration::from_millis(50)).serve(
            HOLD,
            move |ctx: Ctx, n: u32| {
                let (began, gate) = (Arc::clone(&begins), Arc::clone(&opens));
                async move {
                    let body = ctx.step("hold", async |_| {
                        began.notify_one();
                        gate.notified().await;
                        Ok::<_, Failure>(n)
                    });
                    let held = body.await?;
                    ctx.step("add", async |_| Ok::<_, Failure>(held + 1)).await
                }
            },
        );
        let worker = worker.start().await.unwrap();
        Self { onward, worker, began, gate }
    }

    /// Starts a run from a runtime that has ended when this returns.
    async fn start_elsewhere(&self) -> RunId {
        let onward = self.onward.clone();
        let started = on_its_own_runtime(async move { onward.start(HOLD, &1).await.unwrap().id() });
        started.await
    }
}

#[tokio::test]
async fn a_run_outlives_the_runtime_that_started_it() {
    on_each_store(async |onward| {
        let scene = Scene::new(onward).await;
        let run = scene.onward.run(scene.start_elsewhere().await).of_type::<u32>();
        in_time("its step does not begin", scene.began.notified()).await;
        scene.gate.notify_one();
        assert_eq!(in_time("nobody executes it", run.result()).await.unwrap(), 2);
        assert_eq!(run.status().await.unwrap().attempt, 1, "one execution is enough");
        scene.worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cancel_reaches_a_run_that_another_runtime_started() {
    on_each_store(async |onward| {
        let scene = Scene::new(onward).await;
        let run = scene.onward.run(scene.start_elsewhere().await);
        in_time("its step does not begin", scene.began.notified()).await;
        run.cancel().await.unwrap();
        let ended = in_time("the cancel does not reach it", run.ended()).await.unwrap();
        assert_eq!(ended.state, RunState::Cancelled);
        scene.worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_start_whose_runtime_ends_under_it_leaves_no_run_that_nobody_executes() {
    on_each_store(async |onward| {
        let scene = Scene::new(onward).await;
        let caller = scene.onward.clone();
        // Polled once: what the start has begun, nobody of its runtime is there to end.
        on_its_own_runtime(async move {
            let start = caller.start(HOLD, &1).key("left");
            let _ = futures::poll!(std::pin::pin!(start.into_future()));
        })
        .await;
        in_time("its step does not begin", scene.began.notified()).await;
        scene.gate.notify_one();
        let same = scene.onward.start(HOLD, &1).key("left").await.unwrap();
        assert_eq!(in_time("nobody executes it", same.result()).await.unwrap(), 2);
        scene.worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_runtime_that_hangs_lets_its_runs_go() {
    const LEASE: Duration = Duration::from_millis(300);
    on_each_store(async |onward| {
        let mut hangs = tokio::runtime::Builder::new_multi_thread();
        let hangs = hangs.worker_threads(1).enable_all().build().unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let (blocked, tries) = (Arc::new(Mutex::new(blocked)), Arc::new(AtomicU32::new(0)));
        let function = move |ctx: Ctx, n: u32| {
            let (blocked, tries) = (Arc::clone(&blocked), Arc::clone(&tries));
            async move {
                let body = ctx.step("block", async |_| {
                    if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                        // Until its end the only thread of this runtime polls nothing.
                        let _ = blocked.lock().unwrap().recv();
                    }
                    Ok::<_, Failure>(n)
                });
                body.await
            }
        };
        let first = onward.worker().lease(LEASE).serve(HOLD, function.clone());
        let first = hangs.spawn(first.start()).await.unwrap().unwrap();
        let run = onward.start(HOLD, &1).await.unwrap();
        let second = onward.worker().lease(LEASE).serve(HOLD, function).start().await.unwrap();
        assert_eq!(in_time("the hanging worker keeps it", run.result()).await.unwrap(), 1);
        assert_eq!(run.status().await.unwrap().worker, None);
        // It goes on as a worker that has lost its lease.
        release.send(()).unwrap();
        in_time("it is not polled again", first.shutdown()).await.unwrap();
        second.shutdown().await.unwrap();
        hangs.shutdown_background();
    })
    .await;
}
