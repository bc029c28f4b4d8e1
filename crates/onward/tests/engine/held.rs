//! What a worker holds and what it executes: where they differ, the worker puts it right.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use onward::store::{Claimant, End, Lease, NewRun, Settle, StartAt, StartedHow};
use onward::{Ctx, Failure, Json, Onward, RunId, RunState, Waits, Worker, Workflow};
use tokio::sync::Notify;

use crate::listener::Listener;
use crate::stores::on_each_store;

const HOLD: Workflow<u32, u32> = Workflow::named("hold");

/// Short, so that a few renewals pass soon.
const LEASE: Duration = Duration::from_millis(300);

/// What is said of a driver that waits for nothing which could wake it.
const MISSED: &str = "a wake was missed";

/// Only there so that a fault does not hang the suite.
const DEADLINE: Duration = Duration::from_secs(20);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else { panic!("{what}") };
    value
}

/// Bodies that go on until the gate opens.
#[derive(Clone, Default)]
struct Bodies {
    alive: Arc<AtomicU32>,
    begun: Arc<AtomicU32>,
    gate: Arc<Notify>,
}

struct Alive(Arc<AtomicU32>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Bodies {
    async fn serve(&self, onward: &Onward) -> Worker {
        let bodies = self.clone();
        let worker = onward.worker().build("v1").lease(LEASE).serve(HOLD, move |ctx: Ctx, n| {
            let bodies = bodies.clone();
            async move {
                let body = ctx.step("hold", async |_| {
                    bodies.alive.fetch_add(1, Ordering::SeqCst);
                    let _alive = Alive(Arc::clone(&bodies.alive));
                    bodies.begun.fetch_add(1, Ordering::SeqCst);
                    bodies.gate.notified().await;
                    Ok::<_, Failure>(n)
                });
                body.await
            }
        });
        worker.start().await.unwrap()
    }

    /// Waits until so many have begun, and so many of them are left.
    async fn until(&self, begun: u32, alive: u32) {
        let there = || {
            let counts = (self.begun.load(Ordering::SeqCst), self.alive.load(Ordering::SeqCst));
            counts == (begun, alive)
        };
        let waiting = async {
            while !there() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        in_time(&format!("{begun} begun and {alive} alive is never so"), waiting).await;
    }
}

#[tokio::test]
async fn a_lease_that_nothing_executes_is_given_back() {
    on_each_store(async |onward| {
        let bodies = Bodies::default();
        let worker = bodies.serve(&onward).await;
        let claimant = Claimant { worker: worker.id(), build: "v1".to_owned() };
        // As a start whose caller never learns that it claimed the run.
        let new = NewRun {
            id: RunId::new(),
            workflow: HOLD.name().to_owned(),
            queue: "default".to_owned(),
            lane: None,
            priority: 0,
            input: Json::of(&7).unwrap(),
            key: None,
            start_at: StartAt::Now,
            timeout_ms: None,
            tags: Default::default(),
            caller: "test".to_owned(),
            parent: None,
            claimant: Some(claimant),
        };
        let run = onward.run(new.id).of_type::<u32>();
        let started = onward.store().start(vec![new]).await.unwrap().remove(0).unwrap();
        assert_eq!(started.how, StartedHow::Claimed);
        bodies.gate.notify_one();
        assert_eq!(in_time("nobody executes it", run.result()).await.unwrap(), 7);
        assert_eq!(run.status().await.unwrap().crashes, 0, "nothing crashed");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_that_the_store_gave_away_is_dropped() {
    on_each_store(async |onward| {
        let bodies = Bodies::default();
        let worker = bodies.serve(&onward).await;
        let run = onward.start(HOLD, &7).await.unwrap();
        bodies.until(1, 1).await;
        let found = run.status().await.unwrap();
        let lease = Lease { run: run.id(), worker: worker.id(), attempt: found.attempt };
        let waits_for = Waits::Signal { name: "none".to_owned() };
        let end = End::Parked { wake_at: None, waits_for, wakes_seen: found.wakes };
        onward.store().settle(lease, Settle::new(Vec::new(), end)).await.unwrap();
        assert_eq!(run.status().await.unwrap().state, RunState::Waiting);
        bodies.until(1, 0).await;
        run.cancel().await.unwrap();
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_that_comes_back_to_its_worker_is_executed_once() {
    on_each_store(async |onward| {
        let bodies = Bodies::default();
        let worker = bodies.serve(&onward).await;
        let run = onward.start(HOLD, &7).await.unwrap();
        bodies.until(1, 1).await;
        let attempt = run.status().await.unwrap().attempt;
        let lease = Lease { run: run.id(), worker: worker.id(), attempt };
        onward.store().settle(lease, Settle::new(Vec::new(), End::Released)).await.unwrap();
        bodies.until(2, 1).await;
        bodies.gate.notify_one();
        assert_eq!(in_time("it does not end", run.result()).await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_is_held_and_executed_is_left_alone() {
    let listener = Listener::new();
    on_each_store(async |onward| {
        let bodies = Bodies::default();
        let worker = bodies.serve(&onward).await;
        let mut runs = Vec::new();
        for n in 0..5 {
            runs.push(onward.start(HOLD, &n).await.unwrap());
        }
        bodies.until(5, 5).await;
        // Some renewals pass: each is compared.
        tokio::time::sleep(LEASE * 3).await;
        for run in &runs {
            let log = listener.log_of(run.id());
            assert!(!log.contains(MISSED), "a body executes: {log}");
        }
        for _ in &runs {
            bodies.gate.notify_one();
        }
        for run in &runs {
            in_time("it does not end", run.result()).await.unwrap();
            assert_eq!(run.status().await.unwrap().attempt, 1);
        }
        bodies.until(5, 0).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_driver_that_missed_a_wake_says_so_and_looks_again() {
    let listener = Listener::new();
    on_each_store(async |onward| {
        let (polls, open) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (polled, opens) = (Arc::clone(&polls), Arc::clone(&open));
        let worker = onward.worker().lease(LEASE).serve(HOLD, move |ctx: Ctx, n: u32| {
            let (polled, opens) = (Arc::clone(&polled), Arc::clone(&opens));
            async move {
                let held = ctx.step("first", async |_| Ok::<_, Failure>(n)).await?;
                // Nobody is woken when it opens.
                let gate = std::future::poll_fn(|_| {
                    polled.fetch_add(1, Ordering::SeqCst);
                    if opens.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
                });
                gate.await;
                ctx.step("add", async |_| Ok::<_, Failure>(held + 1)).await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(HOLD, &7).await.unwrap();
        let polled = async {
            while polls.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time("the gate is not reached", polled).await;
        open.store(true, Ordering::SeqCst);
        assert_eq!(in_time("it is not looked at again", run.result()).await.unwrap(), 8);
        let log = listener.log_of(run.id());
        assert!(log.contains(MISSED), "{log}");
        worker.shutdown().await.unwrap();
    })
    .await;
}
