//! A run that kills its workers is claimed alone, and does not take its neighbours with it.

mod beside;
mod process;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::limits::{CRASH_BACKOFF_MAX, ENDING_CRASHES_MAX, SUSPECT_CRASHES};
use onward::store::{Claim, ClaimMode, ExpiredLeases, MemoryStore, NewWorker, Store, Sweep};
use onward::{Code, Ctx, Failure, Onward, RunState, TestClock, WorkerId, Workflow};
use tokio::sync::Notify;

const WORK: Workflow<String, ()> = Workflow::named("work");

fn worker(lease_ms: i64) -> NewWorker {
    NewWorker {
        id: WorkerId::new(),
        build: "v1".to_owned(),
        place: "test".to_owned(),
        queues: vec!["default".to_owned()],
        workflows: vec!["work".to_owned()],
        lease_ms,
        concurrency: 8,
    }
}

/// A worker that claims whatever is queued and dies at once.
async fn claim_and_die(store: &Arc<dyn Store>) {
    claim_as_and_die(store, ClaimMode::Ordinary, || {}).await;
}

/// `pass` lets time pass, where the clock does not by itself.
async fn claim_as_and_die(store: &Arc<dyn Store>, mode: ClaimMode, pass: impl Fn()) {
    let (victim, sweeper) = (worker(0), worker(60_000));
    store.join(victim.clone()).await.unwrap();
    store.join(sweeper.clone()).await.unwrap();
    let claim = Claim {
        worker: victim.id,
        ticket: 1,
        build: victim.build,
        queues: victim.queues,
        workflows: victim.workflows,
        limit: 100,
        mode,
    };
    let held = store.claim(claim).await.unwrap().runs.len();
    assert!(held > 0, "there is nothing to claim");
    let sweep = Sweep { worker: sweeper.id, expired: ExpiredLeases::Take };
    let mut taken = 0;
    while taken < held {
        pass();
        tokio::time::sleep(Duration::from_millis(1)).await;
        taken += store.sweep(sweep.clone()).await.unwrap().taken.len();
    }
    store.leave(sweeper.id).await.unwrap();
}

/// Which runs execute, and the gates that hold them.
#[derive(Clone, Default)]
struct Gates {
    open: Arc<Mutex<HashMap<String, Arc<Notify>>>>,
    executing: Arc<Mutex<Vec<String>>>,
}

impl Gates {
    fn gate(&self, name: &str) -> Arc<Notify> {
        Arc::clone(self.open.lock().unwrap().entry(name.to_owned()).or_default())
    }

    fn executing(&self) -> Vec<String> {
        self.executing.lock().unwrap().clone()
    }

    async fn hold(&self, name: &str) {
        self.executing.lock().unwrap().push(name.to_owned());
        self.gate(name).notified().await;
        self.executing.lock().unwrap().retain(|held| held != name);
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "it never came to hold");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_suspect_executes_alone_and_the_others_wait_for_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let onward = Onward::with_store(Arc::clone(&store));
    let suspect = onward.start(WORK, &"suspect".to_owned()).await.unwrap();
    for _ in 0..SUSPECT_CRASHES {
        claim_and_die(&store).await;
    }
    assert_eq!(suspect.status().await.unwrap().crashes, SUSPECT_CRASHES);
    let gates = Gates::default();
    let serving = gates.clone();
    let worker = onward.worker().serve(WORK, move |ctx: Ctx, name: String| {
        let gates = serving.clone();
        async move {
            ctx.step("hold", async |_| {
                gates.hold(&name).await;
                Ok::<_, Failure>(())
            })
            .await
        }
    });
    let worker = worker.start().await.unwrap();
    let neighbour = onward.start(WORK, &"neighbour".to_owned()).await.unwrap();
    until(|| gates.executing() == ["neighbour"]).await;

    // The suspect's pause ends while the neighbour executes: it must not join it.
    while suspect.status().await.unwrap().state == RunState::Waiting {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let late = loop {
        // Until the worker has noticed the suspect, a fresh run may still be claimed as it starts.
        let late = onward.start(WORK, &"late".to_owned()).await.unwrap();
        if late.status().await.unwrap().state == RunState::Queued {
            break late;
        }
        gates.gate("late").notify_one();
        late.ended().await.unwrap();
    };
    assert_eq!(gates.executing(), ["neighbour"]);
    gates.gate("neighbour").notify_one();
    neighbour.result().await.unwrap();
    until(|| gates.executing() == ["suspect"]).await;
    assert_eq!(late.status().await.unwrap().state, RunState::Queued, "the suspect is alone");
    gates.gate("suspect").notify_one();
    suspect.result().await.unwrap();
    until(|| gates.executing() == ["late"]).await;
    gates.gate("late").notify_one();
    late.result().await.unwrap();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_is_to_end_and_kills_its_workers_ends_unexecuted() {
    let clock = TestClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let onward = Onward::with_store(Arc::clone(&store));
    let worker = onward.worker().build("v1").serve(WORK, async |ctx: Ctx, _| {
        let pay = ctx.step("pay", async |_| Ok::<_, Failure>(1));
        pay.undo(async |_, _| Ok::<_, Failure>(())).await?;
        ctx.sleep(Duration::from_secs(3_600)).await;
        Ok(())
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &"kills".to_owned()).await.unwrap();
    let waits = async {
        while run.status().await.unwrap().state != RunState::Waiting {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap();
    worker.shutdown().await.unwrap();
    run.cancel().await.unwrap();
    for crashes in 0..ENDING_CRASHES_MAX {
        let suspect = crashes >= SUSPECT_CRASHES;
        let mode = if suspect { ClaimMode::Suspect } else { ClaimMode::Ordinary };
        claim_as_and_die(&store, mode, || clock.advance(Duration::from_millis(1))).await;
        clock.advance(CRASH_BACKOFF_MAX);
    }
    let executed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&executed);
    let worker = onward.worker().build("v1").serve(WORK, move |_: Ctx, _| {
        seen.store(true, Ordering::SeqCst);
        async { Ok(()) }
    });
    let worker = worker.start().await.unwrap();
    let failure = run.ended().await.unwrap().failure.unwrap();
    assert!(failure.is(Code::UndoFailed.as_str()), "{failure}");
    assert!(failure.message.contains("\"pay\" (crash_loop"), "{failure}");
    assert!(!executed.load(Ordering::SeqCst));
    worker.shutdown().await.unwrap();
}
