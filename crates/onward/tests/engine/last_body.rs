//! Runs whose last body ends while their worker shuts down.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use onward::{Code, Ctx, Failure, Onward, RunHandle, RunState, Worker, Workflow};
use tokio::sync::Notify;

use crate::stores::on_each_store;

const WORK: Workflow<String, u32> = Workflow::named("work");

/// Only there so that a fault does not hang the suite.
const DEADLINE: Duration = Duration::from_secs(20);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else { panic!("{what}") };
    value
}

/// A worker whose bodies go on until the gate opens.
#[derive(Clone, Default)]
struct Bodies {
    begun: Arc<AtomicU32>,
    gate: Arc<Notify>,
}

impl Bodies {
    async fn hold(&self) -> Result<u32, Failure> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.gate.notified().await;
        Ok(1)
    }

    async fn work(self, ctx: Ctx, name: String) -> Result<u32, Failure> {
        match &*name {
            "one" => ctx.step("hold", async |_| self.hold().await).await,
            "three" => {
                let steps = (0..3).map(|_| ctx.step("hold", async |_| self.hold().await));
                let ended: Result<Vec<u32>, Failure> = join_all(steps).await.into_iter().collect();
                Ok(ended?.into_iter().sum())
            }
            "then" => {
                let held = ctx.step("hold", async |_| self.hold().await).await?;
                ctx.step("add", async |_| Ok::<_, Failure>(held + 1)).await
            }
            "undo" => {
                let bodies = self.clone();
                let step = ctx.step("buy", async |_| Ok::<_, Failure>(1));
                let undo = move |_, _| {
                    let bodies = bodies.clone();
                    async move { bodies.hold().await.map(drop) }
                };
                step.undo(undo).await?;
                Err(Failure::fatal("not wanted"))
            }
            other => panic!("{other}"),
        }
    }

    async fn serve(&self, onward: &Onward) -> Worker {
        let bodies = self.clone();
        let worker = onward.worker().shutdown_grace(DEADLINE);
        let worker =
            worker.serve(WORK, move |ctx: Ctx, name: String| bodies.clone().work(ctx, name));
        worker.start().await.unwrap()
    }

    /// Starts a run, and shuts the worker down while so many of its bodies execute.
    async fn shut_down_amid(&self, onward: &Onward, name: &str, bodies: u32) -> RunHandle<u32> {
        let worker = self.serve(onward).await;
        let run = onward.start(WORK, &name.to_owned()).await.unwrap();
        let begun = async {
            while self.begun.load(Ordering::SeqCst) < bodies {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time("its bodies do not begin", begun).await;
        let mut leaving = std::pin::pin!(worker.shutdown());
        // At its first poll it tells the drivers to stop.
        assert!(futures::poll!(&mut leaving).is_pending());
        for _ in 0..bodies {
            self.gate.notify_one();
        }
        in_time("the shutdown does not end", leaving).await.unwrap();
        run
    }
}

#[tokio::test]
async fn a_run_whose_last_body_ends_in_a_shutdown_is_completed() {
    on_each_store(async |onward| {
        for (name, bodies) in [("one", 1), ("three", 3)] {
            let run = Bodies::default().shut_down_amid(&onward, name, bodies).await;
            let ended = run.status().await.unwrap();
            assert_eq!(ended.state, RunState::Completed, "{name}");
            assert_eq!((ended.attempt, ended.output.unwrap().as_str()), (1, &*bodies.to_string()));
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_has_more_to_do_is_given_back_in_a_shutdown() {
    on_each_store(async |onward| {
        let bodies = Bodies::default();
        let run = bodies.shut_down_amid(&onward, "then", 1).await;
        assert_eq!(run.status().await.unwrap().state, RunState::Queued);
        let recorded = run.history().await.unwrap();
        let steps: Vec<_> = recorded.iter().map(|record| record.step.as_str()).collect();
        assert_eq!(steps, ["hold"], "the next step does not begin");
        let worker = bodies.serve(&onward).await;
        assert_eq!(in_time("it does not go on", run.result()).await.unwrap(), 2);
        assert_eq!(bodies.begun.load(Ordering::SeqCst), 1, "what ended is recorded");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_whose_last_undo_ends_in_a_shutdown_has_failed() {
    on_each_store(async |onward| {
        let run = Bodies::default().shut_down_amid(&onward, "undo", 1).await;
        let ended = run.status().await.unwrap();
        assert_eq!(ended.state, RunState::Failed);
        let failure = ended.failure.unwrap();
        assert!(!failure.is(Code::UndoFailed.as_str()), "{failure}");
        assert_eq!(failure.message, "not wanted");
    })
    .await;
}
