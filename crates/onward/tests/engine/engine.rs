//! The engine through its public face, on the memory store.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::limits::{REFUSALS_KEPT_MAX, START_BATCH_MAX};
use onward::store::MemoryStore;
use onward::{Clock, Code, Ctx, Failure, Onward, Retry, RunState, TestClock, Why, Workflow};

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
async fn a_retry_of_the_run_gives_its_step_fresh_tries() {
    const CALL: Workflow<(), u32> = Workflow::named("call");
    let (down, tries) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
    let seen = (Arc::clone(&down), Arc::clone(&tries));
    let onward = Onward::open("memory:").await.unwrap();
    let call = move |ctx: Ctx, ()| {
        let (down, tries) = seen.clone();
        async move {
            let call = ctx.step("call", async |step| {
                tries.lock().unwrap().push(step.try_number());
                match down.load(Ordering::SeqCst) {
                    true => Err(Failure::new("down")),
                    false => Ok(step.try_number()),
                }
            });
            call.retry(Retry::fixed(Duration::from_millis(1)).tries(3)).await
        }
    };
    let worker = onward.worker().serve(CALL, call).start().await.unwrap();
    let run = onward.start(CALL, &()).await.unwrap();
    run.result().await.unwrap_err();
    run.retry().await.unwrap();
    run.result().await.unwrap_err();
    assert_eq!(*tries.lock().unwrap(), [1, 2, 3, 1, 2, 3], "as many again");
    down.store(false, Ordering::SeqCst);
    run.retry().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    worker.shutdown().await.unwrap();
}

/// Serves a body that ends only when it is told that its run is asked to end.
async fn serve_listener(onward: &Onward) -> (onward::Worker, Arc<AtomicU32>) {
    let told = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&told);
    let worker = onward.worker().cancel_grace(Duration::from_secs(3600));
    let worker = worker.serve(LISTEN, move |ctx: Ctx, ()| {
        let seen = Arc::clone(&seen);
        async move {
            ctx.step("listen", async |step| {
                step.cancelled().await;
                seen.fetch_add(1, Ordering::SeqCst);
                Err::<(), _>(Failure::fatal("stopped"))
            })
            .await
        }
    });
    (worker.start().await.unwrap(), told)
}

const LISTEN: Workflow<(), ()> = Workflow::named("listen");

#[tokio::test]
async fn a_run_that_finds_every_worker_full_says_so() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().concurrency(1).serve(LISTEN, async |ctx: Ctx, ()| {
        ctx.step("listen", async |step| {
            step.cancelled().await;
            Ok::<_, Failure>(())
        })
        .await
    });
    let worker = worker.start().await.unwrap();
    let first = onward.start(LISTEN, &()).await.unwrap();
    while first.status().await.unwrap().state != RunState::Running {
        tokio::task::yield_now().await;
    }
    let second = onward.start(LISTEN, &()).await.unwrap();
    let why = second.why().await.unwrap();
    assert!(matches!(why, Why::WorkersBusy { running: 1, places: 1 }), "{why}");
    second.cancel().await.unwrap();
    first.cancel().await.unwrap();
    first.ended().await.unwrap();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_reaches_a_running_body() {
    let onward = Onward::open("memory:").await.unwrap();
    let (worker, told) = serve_listener(&onward).await;
    let run = onward.start(LISTEN, &()).await.unwrap();
    // A run without a record that is not claimed yet would end without its body.
    while run.status().await.unwrap().state != RunState::Running {
        tokio::task::yield_now().await;
    }
    run.cancel().await.unwrap();
    assert_eq!(run.result().await.unwrap_err().code(), Code::RunCancelled);
    assert_eq!(told.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_deadline_reaches_a_running_body() {
    let onward = Onward::open("memory:").await.unwrap();
    let (worker, told) = serve_listener(&onward).await;
    let run = onward.start(LISTEN, &()).timeout(Duration::from_millis(50)).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert!(error.failure().unwrap().is(Code::DeadlineExceeded.as_str()));
    assert_eq!(told.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_cannot_serve_is_refused() {
    let onward = Onward::open("memory:").await.unwrap();
    let code = async |worker: onward::WorkerBuilder| worker.start().await.unwrap_err().code();
    assert_eq!(code(onward.worker()).await, Code::NothingServed);
    let twice = onward.worker().serve(ADD, add).serve(ADD, add);
    assert_eq!(code(twice).await, Code::WorkflowServedTwice);
    let options = [
        onward.worker().serve(ADD, add).concurrency(0),
        onward.worker().serve(ADD, add).lease(Duration::from_millis(1)),
        onward.worker().serve(ADD, add).queues(Vec::<String>::new()),
    ];
    for worker in options {
        assert_eq!(code(worker).await, Code::InvalidOption);
    }
    assert_eq!(code(onward.worker().serve(ADD, add).queues([""])).await, Code::InvalidName);
    assert_eq!(code(onward.worker().serve(ADD, add).build("")).await, Code::InvalidName);
}

#[tokio::test]
async fn a_key_expires_and_a_start_time_is_kept() {
    let clock = TestClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    let onward = Onward::with_store(Arc::new(store));
    let hour = Duration::from_secs(3600);
    let start = || onward.start(ADD, &(1, 2)).key("k").key_ttl(hour);
    let first = start().await.unwrap();
    assert_eq!(start().await.unwrap().id(), first.id());
    clock.advance(hour + Duration::from_millis(1));
    assert_ne!(start().await.unwrap().id(), first.id());
    let at = clock.now() + hour;
    let later = onward.start(ADD, &(1, 2)).at(at).await.unwrap();
    assert_eq!(later.status().await.unwrap().due_at, Some(at));
    assert_eq!(later.status().await.unwrap().state, RunState::Waiting);
}

#[tokio::test]
async fn a_sleep_until_a_time_ends_at_it_and_a_past_one_at_once() {
    const WAKE: Workflow<(), bool> = Workflow::named("wake");
    let clock = TestClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    let onward = Onward::with_store(Arc::new(store));
    let worker = onward.worker().serve(WAKE, async |ctx: Ctx, ()| {
        let begun = ctx.now();
        ctx.sleep_until(begun).await;
        ctx.sleep_until(begun + Duration::from_secs(24 * 3600)).await;
        Ok(ctx.now() >= begun + Duration::from_secs(24 * 3600))
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WAKE, &()).await.unwrap();
    while run.status().await.unwrap().state != RunState::Waiting {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    clock.advance(Duration::from_secs(24 * 3600));
    assert!(run.result().await.unwrap());
    worker.shutdown().await.unwrap();
}

/// Counts how far the source is ahead of what is started: that is what memory holds.
#[tokio::test]
async fn start_many_tells_its_progress_and_takes_only_a_batch_at_a_time() {
    const ITEM: Workflow<u32, ()> = Workflow::named("item");
    let onward = Onward::open("memory:").await.unwrap();
    let taken = Arc::new(AtomicU32::new(0));
    let (source, seen) = (Arc::clone(&taken), Arc::clone(&taken));
    let items = (0..1_700_u32).inspect(move |_| {
        source.fetch_add(1, Ordering::SeqCst);
    });
    let calls = Arc::new(AtomicU32::new(0));
    let called = Arc::clone(&calls);
    let started = onward
        .start_many(ITEM, items)
        .key(|item| if item % 2 == 0 { format!("even-{item}") } else { String::new() })
        .on_progress(move |progress| {
            called.fetch_add(1, Ordering::SeqCst);
            let ahead = u64::from(seen.load(Ordering::SeqCst)) - progress.items;
            assert!(ahead <= START_BATCH_MAX as u64, "{ahead} items ahead");
        })
        .await
        .unwrap();
    assert_eq!((started.started, started.existing, started.refused), (850, 0, 850));
    assert_eq!((started.refusals.len(), started.refusals[0].item), (REFUSALS_KEPT_MAX, 1));
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn start_many_does_not_hold_items_back_for_a_slow_stream() {
    const ITEM: Workflow<u32, ()> = Workflow::named("item");
    let onward = Onward::open("memory:").await.unwrap();
    let (send, mut receive) = tokio::sync::mpsc::channel(10);
    let stream = futures::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let starting = tokio::spawn(onward.start_stream(ITEM, stream).into_future());
    send.send(7).await.unwrap();
    while onward.list(onward::Query::default()).await.unwrap().runs.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(send);
    assert_eq!(starting.await.unwrap().unwrap().started, 1);
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
