//! Pauses and deadlines, with workers that execute.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Onward, RunHandle, RunState, Why, Workflow};
use tokio::sync::Notify;

use crate::stores::{on_each_store, until_state};

const WORK: Workflow<(), u32> = Workflow::named("work");
const NAP: Workflow<u64, u32> = Workflow::named("nap");

/// Steps that take longer than a mark needs to reach its holder.
const STEPS: u32 = 150;

/// Waits until something holds of a run.
async fn until(run: &RunHandle<u32>, holds: impl Fn(&onward::Run) -> bool) -> onward::Run {
    let looking = async {
        loop {
            let found = run.status().await.unwrap();
            if holds(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(20), looking).await;
    found.unwrap_or_else(|_| panic!("it never came to hold"))
}

#[tokio::test]
async fn a_pause_keeps_the_result_of_the_step_in_flight() {
    on_each_store(|onward: Onward| async move {
        let (begun, bodies) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
        let (tell, counted) = (Arc::clone(&begun), Arc::clone(&bodies));
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let (tell, counted) = (Arc::clone(&tell), Arc::clone(&counted));
            async move {
                for _ in 0..STEPS {
                    let step = ctx.step("step", async |_| {
                        counted.fetch_add(1, Ordering::SeqCst);
                        tell.notify_one();
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        Ok::<_, Failure>(1)
                    });
                    step.await?;
                }
                Ok(STEPS)
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        begun.notified().await;
        run.pause().await.unwrap();
        let paused = until(&run, |run| run.state != RunState::Running).await;
        assert_eq!(paused.state, RunState::Queued);
        assert!(paused.paused_at.is_some() && paused.paused_by.is_some());
        let recorded = run.history().await.unwrap().len() as u32;
        assert!((1..STEPS).contains(&recorded), "it stopped half-way, after {recorded}");
        assert_eq!(bodies.load(Ordering::SeqCst), recorded, "what began is recorded");
        let said = run.why().await.unwrap().to_string();
        assert!(said.contains("paused since") && said.contains("onward runs resume"), "{said}");
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), STEPS);
        assert_eq!(bodies.load(Ordering::SeqCst), STEPS, "no body was executed twice");
        assert_eq!(run.pause().await.unwrap_err().code(), Code::RunFinished);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_paused_run_wakes_for_nothing_and_resumes_with_all_of_it() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().linger(Duration::ZERO);
        let worker = worker.serve(NAP, async |ctx: Ctx, nap: u64| {
            ctx.sleep(Duration::from_millis(nap)).await;
            ctx.signal::<u32>("go").await
        });
        let worker = worker.start().await.unwrap();
        let mut nap = 300;
        // Longer on a machine so busy that the timer comes before the pause.
        let run = loop {
            let run = onward.start(NAP, &nap).await.unwrap();
            until_state(&run, RunState::Waiting).await;
            run.pause().await.unwrap();
            if run.status().await.unwrap().attempt == 1 {
                break run;
            }
            nap *= 2;
        };
        run.signal("go", &7).await.unwrap();
        until_state(&run, RunState::Queued).await;
        assert!(run.history().await.unwrap().is_empty(), "the timer came, and nobody looked");
        assert_eq!(run.status().await.unwrap().attempt, 1);
        assert!(matches!(run.why().await.unwrap(), Why::Paused { .. }));
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_that_lingers_for_a_signal_hears_of_a_pause() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().linger(Duration::from_secs(60));
        let worker = worker.serve(WORK, async |ctx: Ctx, ()| ctx.signal::<u32>("go").await);
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        until_state(&run, RunState::Running).await;
        run.pause().await.unwrap();
        until_state(&run, RunState::Queued).await;
        run.signal("go", &7).await.unwrap();
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cancel_of_a_paused_run_goes_through() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, async |ctx: Ctx, ()| {
            ctx.step("one", async |_| Ok::<_, Failure>(1)).await?;
            ctx.signal::<u32>("go").await
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        run.pause().await.unwrap();
        run.cancel().await.unwrap();
        assert_eq!(run.result().await.unwrap_err().code(), Code::RunCancelled);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_deadline_of_a_paused_run_holds() {
    on_each_store(|onward: Onward| async move {
        let executed = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&executed);
        let start = || onward.start(WORK, &()).timeout(Duration::from_millis(400));
        let (queued, parked) = (start().await.unwrap(), start().delay(Duration::from_millis(50)));
        let parked = parked.await.unwrap();
        for run in [&queued, &parked] {
            run.pause().await.unwrap();
        }
        let worker = onward.worker().lease(Duration::from_secs(2));
        let worker = worker.serve(WORK, move |_: Ctx, ()| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Failure>(1) }
        });
        let worker = worker.start().await.unwrap();
        for run in [queued, parked] {
            let error = run.result().await.unwrap_err();
            let failure = error.failure().unwrap();
            assert!(failure.is(Code::DeadlineExceeded.as_str()), "{error}");
        }
        assert_eq!(executed.load(Ordering::SeqCst), 0, "none of its code was executed");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_deadline_of_a_run_that_is_being_paused_ends_its_body() {
    on_each_store(|onward: Onward| async move {
        let begun = Arc::new(Notify::new());
        let tell = Arc::clone(&begun);
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let tell = Arc::clone(&tell);
            async move {
                let long = ctx.step("long", async |step| {
                    tell.notify_one();
                    step.cancelled().await;
                    Err::<u32, _>(Failure::fatal("stopped half-way"))
                });
                long.await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).timeout(Duration::from_secs(2)).await.unwrap();
        begun.notified().await;
        run.pause().await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), run.result()).await.unwrap();
        let error = ended.unwrap_err();
        assert!(error.failure().unwrap().is(Code::DeadlineExceeded.as_str()), "{error}");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_deadline_that_passed_while_no_worker_was_alive_holds() {
    on_each_store(|onward: Onward| async move {
        let serve = || {
            onward
                .worker()
                .linger(Duration::ZERO)
                .serve(WORK, async |ctx: Ctx, ()| ctx.signal::<u32>("go").await)
        };
        let worker = serve().start().await.unwrap();
        let timeout = Duration::from_millis(600);
        let parked = onward.start(WORK, &()).timeout(timeout).await.unwrap();
        until_state(&parked, RunState::Waiting).await;
        worker.shutdown().await.unwrap();
        let queued = onward.start(WORK, &()).timeout(timeout).await.unwrap();
        let late = parked.status().await.unwrap().deadline_at.unwrap();
        let late = late.max(queued.status().await.unwrap().deadline_at.unwrap());
        onward.store().clock().sleep_until(late).await;
        // A signal that comes too late does not save it.
        parked.signal("go", &1).await.unwrap();
        let worker = serve().start().await.unwrap();
        for run in [parked, queued] {
            let error = run.result().await.unwrap_err();
            assert!(error.failure().unwrap().is(Code::DeadlineExceeded.as_str()), "{error}");
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}
