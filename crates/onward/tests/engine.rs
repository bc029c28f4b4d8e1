//! The engine through its public face, on the memory store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Onward, Retry, RunState, Workflow};

const ADD: Workflow<(u32, u32), u32> = Workflow::named("add");

async fn add(ctx: Ctx, (a, b): (u32, u32)) -> Result<u32, Failure> {
    let a = ctx.step("first", async |_| Ok::<_, Failure>(a * 10)).await?;
    let b = ctx.step("second", async |_| Ok::<_, Failure>(b * 10)).await?;
    Ok(a + b)
}

#[tokio::test]
async fn a_run_completes() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(ADD, add).start().await.unwrap();
    let run = onward.start(ADD, &(1, 2)).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 30);
    let steps: Vec<_> = run.history().await.unwrap().into_iter().map(|r| r.step).collect();
    assert_eq!(steps, ["first", "second"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_failing_step_is_tried_again() {
    const FLAKY: Workflow<(), u32> = Workflow::named("flaky");
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward
        .worker()
        .serve(FLAKY, move |ctx: Ctx, ()| {
            let tries = Arc::clone(&counted);
            async move {
                ctx.step("flaky", async |step| {
                    tries.fetch_add(1, Ordering::SeqCst);
                    if step.try_number() < 3 { Err("not yet") } else { Ok(step.try_number()) }
                })
                .retry(Retry::fixed(Duration::from_millis(1)))
                .await
            }
        })
        .start()
        .await
        .unwrap();
    let run = onward.start(FLAKY, &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_final_failure_fails_the_run_and_retry_goes_on() {
    const PAY: Workflow<(), String> = Workflow::named("pay");
    let solvent = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&solvent);
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward
        .worker()
        .serve(PAY, move |ctx: Ctx, ()| {
            let seen = Arc::clone(&seen);
            async move {
                ctx.step("reserve", async |_| Ok::<_, Failure>(())).await?;
                ctx.step("charge", async |_| match seen.load(Ordering::SeqCst) {
                    0 => Err(Failure::fatal("no money").code("card_declined")),
                    _ => Ok("paid".to_owned()),
                })
                .await
            }
        })
        .start()
        .await
        .unwrap();
    let run = onward.start(PAY, &()).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert_eq!(error.code(), Code::RunFailed);
    assert!(error.failure().unwrap().is("card_declined"));
    solvent.store(1, Ordering::SeqCst);
    run.retry().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "paid");
    let history = run.history().await.unwrap();
    let voided: Vec<_> = history.iter().map(|r| (r.step.as_str(), r.voided_at.is_some())).collect();
    assert_eq!(voided, [("reserve", false), ("charge", true), ("charge", false)]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_reaches_a_running_body() {
    const LONG: Workflow<(), ()> = Workflow::named("long");
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward
        .worker()
        .serve(LONG, async |ctx: Ctx, ()| {
            ctx.step("long", async |step| {
                step.cancelled().await;
                Err::<(), _>(Failure::fatal("stopped"))
            })
            .await
        })
        .start()
        .await
        .unwrap();
    let run = onward.start(LONG, &()).await.unwrap();
    run.cancel().await.unwrap();
    assert_eq!(run.result().await.unwrap_err().code(), Code::RunCancelled);
    assert_eq!(run.status().await.unwrap().state, RunState::Cancelled);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_sleep_parks_the_run() {
    const NAP: Workflow<(), ()> = Workflow::named("nap");
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward
        .worker()
        .linger(Duration::ZERO)
        .serve(NAP, async |ctx: Ctx, ()| {
            ctx.sleep(Duration::from_millis(50)).await;
            ctx.step("after", async |_| Ok::<_, Failure>(())).await
        })
        .start()
        .await
        .unwrap();
    let run = onward.start(NAP, &()).await.unwrap();
    run.result().await.unwrap();
    assert_eq!(run.status().await.unwrap().attempt, 2);
    worker.shutdown().await.unwrap();
}
