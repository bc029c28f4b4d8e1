//! Faults that a reviewer found once: each test fails without its mend.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use onward::conformance::LossyStore;
use onward::store::{MemoryStore, Store};
use onward::{Code, Ctx, Entry, Failure, Onward, Record, RunHandle, RunState, Waits, Workflow};
use tokio::sync::Notify;

const UNIT: Workflow<(), ()> = Workflow::named("unit");

/// A lease that nobody renews while a test lasts.
const LONG: Duration = Duration::from_secs(3600);

/// Only there so that a fault does not hang the suite.
const DEADLINE: Duration = Duration::from_secs(20);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else { panic!("{what}") };
    value
}

async fn in_state(run: &RunHandle<()>, state: RunState) -> onward::Run {
    in_time("the run never gets there", async {
        loop {
            let found = run.status().await.unwrap();
            if found.state == state {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

#[tokio::test]
async fn result_of_a_run_cancelled_before_any_claim_resolves() {
    let onward = Onward::open("memory:").await.unwrap();
    let run = onward.start(UNIT, &()).await.unwrap();
    run.cancel().await.unwrap();
    let error = in_time("result() waits for ever", run.result()).await.unwrap_err();
    assert_eq!(error.code(), Code::RunCancelled);
}

#[tokio::test]
async fn result_of_a_run_that_another_process_finished_resolves() {
    let data: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (here, there) = (Onward::with_store(Arc::clone(&data)), Onward::with_store(data));
    let run = here.start(UNIT, &()).await.unwrap();
    let worker = there.worker().serve(UNIT, async |_: Ctx, ()| Ok(())).start().await.unwrap();
    in_time("it is not served", there.run(run.id()).ended()).await.unwrap();
    worker.shutdown().await.unwrap();
    in_time("result() waits for ever", run.result()).await.unwrap();
}

/// Serves a step that fails until it is told otherwise.
async fn serve_charge(onward: &Onward, cleanup: bool) -> (onward::Worker, Arc<AtomicBool>) {
    let solvent = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&solvent);
    let worker = onward.worker().serve(UNIT, move |ctx: Ctx, ()| {
        let seen = Arc::clone(&seen);
        async move {
            let charged = ctx.step("charge", async |_| match seen.load(Ordering::SeqCst) {
                true => Ok(()),
                false => Err(Failure::fatal("no money")),
            });
            let Err(failure) = charged.await else { return Ok(()) };
            if cleanup {
                ctx.step("tell the customer", async |_| Ok::<_, Failure>(())).await?;
            }
            Err(failure)
        }
    });
    (worker.start().await.unwrap(), solvent)
}

#[tokio::test]
async fn result_after_a_retry_is_not_the_old_failure() {
    let onward = Onward::open("memory:").await.unwrap();
    let (worker, solvent) = serve_charge(&onward, false).await;
    let run = onward.start(UNIT, &()).await.unwrap();
    in_state(&run, RunState::Failed).await;
    solvent.store(true, Ordering::SeqCst);
    run.retry().await.unwrap();
    in_state(&run, RunState::Completed).await;
    run.result().await.unwrap();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_retry_goes_another_way_than_the_function_answered_the_failure() {
    let onward = Onward::open("memory:").await.unwrap();
    let (worker, solvent) = serve_charge(&onward, true).await;
    let run = onward.start(UNIT, &()).await.unwrap();
    run.result().await.unwrap_err();
    solvent.store(true, Ordering::SeqCst);
    run.retry().await.unwrap();
    in_time("the run is stuck", run.ended()).await.unwrap();
    run.result().await.unwrap();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_failure_that_was_handled_is_not_voided_by_a_retry() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(UNIT, async |ctx: Ctx, ()| {
        let handled = ctx.step("handled", async |_| Err::<(), _>(Failure::fatal("never mind")));
        assert!(handled.await.is_err());
        ctx.step("after", async |_| Ok::<_, Failure>(())).await?;
        Err(Failure::fatal("the function's own"))
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(UNIT, &()).await.unwrap();
    run.result().await.unwrap_err();
    run.retry().await.unwrap();
    run.ended().await.unwrap();
    let history = run.history().await.unwrap();
    assert!(history.iter().all(|record| record.voided_at.is_none()), "{history:?}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_polled_after_its_end_does_not_execute_again() {
    let executed = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&executed);
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(UNIT, move |ctx: Ctx, ()| {
        let seen = Arc::clone(&seen);
        async move {
            let mut step = ctx.step("once", async |_| {
                seen.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Failure>(())
            });
            (&mut step).await?;
            (&mut step).await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(UNIT, &()).await.unwrap();
    let error = in_time("the run never ends", run.result()).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, Code::Panic.as_str());
    assert_eq!(executed.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

/// A yield that is not tokio's: it wakes itself within the poll.
struct SelfYield(bool);

impl Future for SelfYield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// On one thread: if the body kept it, nothing here would ever go on.
#[tokio::test]
async fn a_body_that_never_rests_lets_others_go_on_and_can_be_cancelled() {
    let onward = Onward::open("memory:").await.unwrap();
    let begun = Arc::new(Notify::new());
    let seen = Arc::clone(&begun);
    let worker = onward.worker().cancel_grace(Duration::from_millis(10));
    let worker = worker.serve(UNIT, move |ctx: Ctx, ()| {
        let seen = Arc::clone(&seen);
        async move {
            ctx.step("spin", async |_| {
                seen.notify_one();
                loop {
                    SelfYield(false).await;
                }
                #[allow(unreachable_code, reason = "it says what the body would give")]
                Ok::<_, Failure>(())
            })
            .await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(UNIT, &()).await.unwrap();
    in_time("it never begins", begun.notified()).await;
    run.cancel().await.unwrap();
    let ended = in_time("the thread is never given back", run.ended()).await.unwrap();
    assert_eq!(ended.state, RunState::Cancelled);
    worker.shutdown().await.unwrap();
}

/// The store refuses the end because a record is in its place that the driver did not write.
#[tokio::test]
async fn a_run_whose_end_is_refused_is_stuck_and_can_be_retried() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let onward = Onward::with_store(Arc::clone(&store));
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gates = (Arc::clone(&begun), Arc::clone(&go_on));
    let worker = onward.worker().serve(UNIT, move |ctx: Ctx, ()| {
        let (begun, go_on) = gates.clone();
        async move {
            ctx.step("held", async |_| {
                begun.notify_one();
                go_on.notified().await;
                Ok::<_, Failure>(())
            })
            .await
        }
    });
    let worker = worker.start().await.unwrap();
    // A delayed start is woken once: the number of wakes that the holder knows of counts.
    let run = onward.start(UNIT, &()).delay(Duration::from_millis(1)).await.unwrap();
    in_time("it never begins", begun.notified()).await;
    let held = run.status().await.unwrap();
    let lease =
        onward::store::Lease { run: held.id, worker: held.worker.unwrap(), attempt: held.attempt };
    let foreign = Record::new(1, "held", Entry::Fired, held.created_at);
    store.record(lease, vec![foreign].into()).await.unwrap();
    go_on.notify_one();
    let stuck = in_state(&run, RunState::Waiting).await;
    assert!(matches!(stuck.waits_for, Some(Waits::Stuck { .. })), "{:?}", stuck.waits_for);
    run.retry().await.unwrap();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_sleep_past_the_history_limit_fails_the_run() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(UNIT, async |ctx: Ctx, ()| {
        let sleeps = (0..onward::limits::HISTORY_RECORDS_MAX).map(|_| ctx.sleep(Duration::ZERO));
        futures::future::join_all(sleeps).await;
        ctx.sleep(Duration::from_secs(3600)).await;
        Ok(())
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(UNIT, &()).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, Code::HistoryFull.as_str());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_worker_whose_handle_is_dropped_goes_on_serving() {
    let onward = Onward::open("memory:").await.unwrap();
    drop(onward.worker().serve(UNIT, async |_: Ctx, ()| Ok(())).start().await.unwrap());
    tokio::task::yield_now().await;
    let run = onward.start(UNIT, &()).await.unwrap();
    in_time("nobody serves it", run.result()).await.unwrap();
}

/// Fails where the lease of a worker is renewed that has nobody to execute its runs any more.
#[test]
fn a_worker_whose_runtime_ended_lets_its_runs_go() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (one, two) = (runtime(), runtime());
    let entered = Arc::new(Notify::new());
    let (onward, run, kept) = one.block_on(async {
        let onward = Onward::open("memory:").await.unwrap();
        let enter = Arc::clone(&entered);
        let hangs = move |_: Ctx, ()| {
            enter.notify_one();
            std::future::pending::<Result<(), Failure>>()
        };
        let serving = onward.worker().lease(Duration::from_millis(300)).serve(UNIT, hangs);
        let kept = serving.start().await.unwrap();
        let run = onward.start(UNIT, &()).await.unwrap();
        in_time("nobody serves it", entered.notified()).await;
        (onward, run, kept)
    });
    one.shutdown_background();
    two.block_on(async {
        let serving = onward.worker().lease(Duration::from_millis(300));
        let worker = serving.serve(UNIT, async |_: Ctx, ()| Ok(())).start().await.unwrap();
        in_time("a worker without a runtime holds it", run.result()).await.unwrap();
        worker.shutdown().await.unwrap();
    });
    drop(kept);
}

/// Fails where tries that nobody answered count: after them the run is held by a worker that lives,
/// and executed by nobody.
#[tokio::test(start_paused = true)]
async fn a_start_of_unknown_outcome_is_given_back_after_a_long_outage() {
    let store = Arc::new(LossyStore::around(Arc::new(MemoryStore::new())));
    let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
    let worker = onward.worker().serve(UNIT, async |_: Ctx, ()| Ok(())).lease(LONG);
    let worker = worker.start().await.unwrap();
    store.go_away_after(1);
    store.lose_next(1);
    let error = onward.start(UNIT, &()).key("k").await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable);
    tokio::time::sleep(Duration::from_secs(60)).await;
    store.come_back();
    let run = onward.start(UNIT, &()).key("k").await.unwrap();
    in_time("nobody executes it", run.result()).await.unwrap();
    worker.shutdown().await.unwrap();
}

/// Fails where the start of unknown outcome keeps the worker's place while it is given back: a worker
/// whose places are all kept so would execute nothing.
#[tokio::test]
async fn a_start_of_unknown_outcome_takes_no_place_of_its_worker() {
    let store = Arc::new(LossyStore::around(Arc::new(MemoryStore::new())));
    let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
    let worker = onward.worker().serve(UNIT, async |_: Ctx, ()| Ok(())).lease(LONG).concurrency(1);
    let worker = worker.start().await.unwrap();
    store.go_away_after(0);
    let error = onward.start(UNIT, &()).key("lost").await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable);
    store.come_back();
    let run = onward.start(UNIT, &()).await.unwrap();
    in_time("it has no place", run.result()).await.unwrap();
    in_time("the place is not given back", worker.shutdown()).await.unwrap();
}
