//! Suspects and those around them: who waits for whom, and for how long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::limits::{SUSPECT_CRASHES, SUSPECT_PATIENCE, SUSPECTS_BESIDE_MAX, SUSPECTS_TURN_MAX};
use onward::store::ClaimMode;
use onward::{Ctx, Failure, Onward, RunHandle, RunState, Why};
use tokio::sync::Notify;

use super::{WORK, claim_and_die, claim_as_and_die};
use crate::stores::on_each_store;

/// Within what everybody is done that does not kill.
const SOON: Duration = Duration::from_secs(10);

/// Runs that a worker died with, and that do not kill.
const INNOCENTS: usize = 20;

/// Starts runs, and lets a worker die with all of them as often as makes them suspects.
async fn suspects(onward: &Onward, names: &[&str]) -> Vec<RunHandle<()>> {
    let mut runs = Vec::new();
    for name in names {
        runs.push(onward.start(WORK, &(*name).to_owned()).await.unwrap());
    }
    for _ in 0..SUSPECT_CRASHES {
        claim_and_die(onward.store()).await;
    }
    runs
}

/// What a worker's runs do, and how many of them do it at once.
#[derive(Clone, Default)]
struct Floor {
    executing: Arc<AtomicUsize>,
    /// How many executed when each began, itself included, and what it is.
    company: Arc<Mutex<Vec<(String, usize)>>>,
    gate: Arc<Notify>,
}

impl Floor {
    fn company(&self) -> Vec<usize> {
        self.company.lock().unwrap().iter().map(|(_, company)| *company).collect()
    }

    fn company_of(&self, name: &str) -> Vec<usize> {
        let company = self.company.lock().unwrap();
        company.iter().filter(|(of, _)| of == name).map(|(_, company)| *company).collect()
    }

    /// `innocent` and `again` take a moment, `slow` and `late` go on until the gate opens, `late` after a record.
    async fn work(self, ctx: Ctx, name: String) -> Result<(), Failure> {
        if name == "late" {
            ctx.step("record", async |_| Ok::<_, Failure>(())).await?;
        }
        let body = ctx.step("work", async |_| {
            let executing = self.executing.fetch_add(1, Ordering::SeqCst) + 1;
            self.company.lock().unwrap().push((name.clone(), executing));
            match &*name {
                "innocent" | "again" => tokio::time::sleep(Duration::from_millis(30)).await,
                _ => self.gate.notified().await,
            }
            self.executing.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Failure>(())
        });
        body.await
    }

    async fn serve(&self, onward: &Onward, concurrency: usize) -> onward::Worker {
        let floor = self.clone();
        let worker = onward.worker().concurrency(concurrency);
        let worker =
            worker.serve(WORK, move |ctx: Ctx, name: String| floor.clone().work(ctx, name));
        worker.start().await.unwrap()
    }
}

/// Waits until all have ended, and says how long that took.
async fn all_done(runs: &[RunHandle<()>]) -> Duration {
    let begun = Instant::now();
    for run in runs {
        let left = (SOON * 2).saturating_sub(begun.elapsed());
        let ended = tokio::time::timeout(left, run.ended()).await;
        assert!(ended.is_ok(), "after {SOON:?} twice: {}", run.why().await.unwrap());
    }
    begun.elapsed()
}

#[tokio::test]
async fn suspects_follow_each_other_without_a_pause() {
    on_each_store(async |onward| {
        let runs = suspects(&onward, &["innocent"; INNOCENTS]).await;
        let floor = Floor::default();
        let worker = floor.serve(&onward, 100).await;
        let took = all_done(&runs).await;
        assert!(took < SOON, "they took {took:?}");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn innocents_speak_for_their_batch() {
    on_each_store(async |onward| {
        let runs = suspects(&onward, &["innocent"; INNOCENTS]).await;
        let floor = Floor::default();
        let worker = floor.serve(&onward, 100).await;
        all_done(&runs).await;
        let company = floor.company();
        assert_eq!(company[0], 1, "the first is alone");
        let most = company.iter().max().unwrap();
        assert!((2..=SUSPECTS_BESIDE_MAX).contains(most), "{company:?}");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_suspect_that_has_crashed_again_is_alone_whoever_was_innocent_before() {
    on_each_store(async |onward| {
        let repeaters = suspects(&onward, &["again"; 4]).await;
        for _ in &repeaters {
            until_queued(&onward, &repeaters).await;
            claim_as_and_die(onward.store(), ClaimMode::Suspect, || {}).await;
        }
        let first = suspects(&onward, &["innocent"; SUSPECTS_BESIDE_MAX]).await;
        let floor = Floor::default();
        let worker = floor.serve(&onward, 100).await;
        all_done(&first).await;
        all_done(&repeaters).await;
        assert_eq!(floor.company_of("again"), [1; 4]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The worker takes it while the first that crashed less often still executes.
#[tokio::test]
async fn a_suspect_that_has_crashed_again_waits_for_those_that_execute() {
    on_each_store(async |onward| {
        let repeater = suspects(&onward, &["again"]).await;
        until_queued(&onward, &repeater).await;
        claim_as_and_die(onward.store(), ClaimMode::Suspect, || {}).await;
        let others = suspects(&onward, &["innocent", "slow"]).await;
        let floor = Floor::default();
        let worker = floor.serve(&onward, 100).await;
        all_done(&others[..1]).await;
        let is_held = async || {
            let status = repeater[0].status().await.unwrap();
            status.state == RunState::Running
        };
        let end = Instant::now() + SOON;
        while !is_held().await {
            assert!(Instant::now() < end, "{}", repeater[0].why().await.unwrap());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        floor.gate.notify_one();
        all_done(&repeater).await;
        assert_eq!(floor.company_of("again"), [1]);
        all_done(&others).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Waits until one of these is queued that was a suspect once.
async fn until_queued(onward: &Onward, runs: &[RunHandle<()>]) {
    // Any claim wakes what is due.
    let worker = super::worker(60_000);
    onward.store().join(worker.clone()).await.unwrap();
    let mut ticket = 0;
    loop {
        ticket += 1;
        let claim = onward::store::Claim {
            worker: worker.id,
            ticket,
            build: worker.build.clone(),
            queues: worker.queues.clone(),
            workflows: worker.workflows.clone(),
            limit: 0,
            mode: ClaimMode::Ordinary,
        };
        onward.store().claim(claim).await.unwrap();
        for run in runs {
            let run = run.status().await.unwrap();
            if run.state == RunState::Queued && run.crashes == SUSPECT_CRASHES {
                return onward.store().leave(worker.id).await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn suspects_wait_only_so_long_for_a_worker_whose_places_are_taken() {
    on_each_store(async |onward| {
        let runs = suspects(&onward, &["innocent"; INNOCENTS]).await;
        let floor = Floor::default();
        let worker = floor.serve(&onward, 3).await;
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(onward.start(WORK, &"slow".to_owned()).await.unwrap());
        }
        let took = all_done(&runs).await;
        assert!(took < SOON, "they took {took:?}");
        for _ in &others {
            floor.gate.notify_one();
        }
        all_done(&others).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_suspect_that_goes_on_for_long_holds_nobody_up() {
    on_each_store(async |onward| {
        let slow = suspects(&onward, &["slow"]).await;
        let floor = Floor::default();
        let worker = floor.serve(&onward, 100).await;
        while floor.company().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // One is behind it, as anybody else is.
        let other = onward.start(WORK, &"innocent".to_owned()).await.unwrap();
        let mut behind = suspects(&onward, &["innocent"]).await;
        behind.push(other);
        let took = all_done(&behind).await;
        assert!(took < SUSPECTS_TURN_MAX, "they took {took:?}");
        floor.gate.notify_one();
        all_done(&slow).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_suspect_that_records_is_cleared() {
    on_each_store(async |onward| {
        let late = suspects(&onward, &["late"]).await;
        let floor = Floor::default();
        let worker = floor.serve(&onward, 100).await;
        while floor.company().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        let other = onward.start(WORK, &"innocent".to_owned()).await.unwrap();
        all_done(&[other]).await;
        assert!(began.elapsed() < SUSPECT_PATIENCE, "it executes on, and is no suspect any more");
        floor.gate.notify_one();
        all_done(&late).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_suspect_says_that_it_waits_to_be_alone() {
    on_each_store(async |onward| {
        let floor = Floor::default();
        let runs = suspects(&onward, &["innocent"]).await;
        let said = runs[0].why().await.unwrap().to_string();
        assert!(said.contains("suspected after 3 crashes; waits to be executed alone"), "{said}");
        let worker = floor.serve(&onward, 100).await;
        let slow = onward.start(WORK, &"slow".to_owned()).await.unwrap();
        let deadline = Instant::now() + SOON;
        while !matches!(runs[0].why().await.unwrap(), Why::Suspected { crashes: 3 }) {
            assert!(Instant::now() < deadline, "{}", runs[0].why().await.unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        floor.gate.notify_one();
        all_done(&[slow]).await;
        all_done(&runs).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}
