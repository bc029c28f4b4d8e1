//! Time in a `TestOnward`: it passes when nothing else is left to do, and only then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onward::testing::TestOnward;
use onward::{Code, Ctx, Failure, Retry, RunState, Timestamp, Workflow};
use tokio::sync::{Mutex, oneshot};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const NAP: Workflow<Vec<u64>, Vec<Timestamp>> = Workflow::named("nap");

/// Sleeps for so many hours, one after the other, and says when each sleep ended.
async fn nap(ctx: Ctx, hours: Vec<u64>) -> Result<Vec<Timestamp>, Failure> {
    let mut woke = Vec::new();
    for hours in hours {
        ctx.sleep(HOUR * u32::try_from(hours)?).await;
        woke.push(ctx.now());
    }
    Ok(woke)
}

async fn napping() -> TestOnward {
    let onward = TestOnward::new().await.unwrap();
    onward.worker().serve(NAP, nap).start().await.unwrap();
    onward
}

/// Thirty days by the store's clock, and a deadline by the machine's.
async fn sleeps_a_month() {
    let began = Instant::now();
    let onward = napping().await;
    let begin = onward.now();
    let run = onward.start(NAP, &vec![30 * 24]).await.unwrap();
    assert_eq!(run.result().await.unwrap(), [begin + 30 * DAY]);
    assert_eq!(onward.now(), begin + 30 * DAY);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_month_passes_while_the_test_waits() {
    sleeps_a_month().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_passes_on_several_threads() {
    for _ in 0..50 {
        sleeps_a_month().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_month_passes_while_the_runtime_s_own_time_is_paused() {
    sleeps_a_month().await;
}

#[tokio::test]
async fn each_sleep_ends_at_its_own_time() {
    let onward = napping().await;
    let begin = onward.now();
    let run = onward.start(NAP, &vec![1, 48, 2]).await.unwrap();
    let woke = run.result().await.unwrap();
    assert_eq!(woke, [begin + HOUR, begin + 49 * HOUR, begin + 51 * HOUR]);
}

#[tokio::test]
async fn time_stands_still_while_nobody_waits() {
    let onward = napping().await;
    let begin = onward.now();
    let run = onward.start(NAP, &vec![1]).await.unwrap();
    onward.quiet().await;
    assert_eq!(run.status().await.unwrap().state, RunState::Waiting);
    assert_eq!(onward.now(), begin);
}

#[tokio::test]
async fn the_test_goes_on_at_the_time_of_the_end_it_waited_for() {
    let onward = napping().await;
    let begin = onward.now();
    let late = onward.start(NAP, &vec![5]).await.unwrap();
    let soon = onward.start(NAP, &vec![2]).await.unwrap();
    soon.result().await.unwrap();
    onward.quiet().await;
    assert_eq!(onward.now(), begin + 2 * HOUR, "nobody waits for the other one");
    late.result().await.unwrap();
    assert_eq!(onward.now(), begin + 5 * HOUR);
}

#[tokio::test]
async fn advance_lets_everything_happen_at_its_time() {
    let onward = napping().await;
    let begin = onward.now();
    let run = onward.start(NAP, &vec![1, 1, 1, 1]).await.unwrap();
    onward.advance(3 * HOUR).await;
    assert_eq!(onward.now(), begin + 3 * HOUR);
    let fired: Vec<_> = run.history().await.unwrap().iter().map(|record| record.at).collect();
    assert_eq!(fired, [begin + HOUR, begin + 2 * HOUR, begin + 3 * HOUR]);
    assert_eq!(run.status().await.unwrap().state, RunState::Waiting);
}

#[tokio::test]
async fn advance_and_a_wait_beside_it_share_one_time() {
    let onward = napping().await;
    let begin = onward.now();
    let run = onward.start(NAP, &vec![100]).await.unwrap();
    let waits = tokio::spawn(async move { run.result().await });
    onward.advance(HOUR).await;
    assert_eq!(onward.now(), begin + HOUR, "the wait does not overtake");
    assert_eq!(waits.await.unwrap().unwrap(), [begin + 100 * HOUR]);
}

const HELD: Workflow<(), ()> = Workflow::named("held");

#[tokio::test]
async fn time_does_not_pass_while_a_body_executes() {
    let onward = TestOnward::new().await.unwrap();
    let (let_go, held) = oneshot::channel::<()>();
    let held = Arc::new(Mutex::new(Some(held)));
    let function = move |ctx: Ctx, ()| {
        let held = Arc::clone(&held);
        async move {
            let wait = ctx.step("wait", async |_| {
                let held = held.lock().await.take().ok_or("executed twice")?;
                held.await.map_err(|_| Failure::new("nobody let go"))
            });
            wait.await
        }
    };
    onward.worker().serve(NAP, nap).serve(HELD, function).start().await.unwrap();
    let begin = onward.now();
    let body = onward.start(HELD, &()).await.unwrap();
    let sleeper = onward.start(NAP, &vec![24]).await.unwrap();
    let mut waits = std::pin::pin!(sleeper.result());
    // Turns for every task there is, many times over: the body does not finish, so no time passes.
    for _ in 0..1_000 {
        assert!(futures::poll!(&mut waits).is_pending());
        tokio::task::yield_now().await;
        assert_eq!(onward.now(), begin);
    }
    let_go.send(()).unwrap();
    assert_eq!(waits.await.unwrap(), [begin + DAY]);
    body.result().await.unwrap();
}

const SHAKY: Workflow<u32, u32> = Workflow::named("shaky");

#[tokio::test]
async fn the_pauses_between_tries_take_no_time_of_the_machine() {
    let began = Instant::now();
    let onward = TestOnward::new().await.unwrap();
    let function = async |ctx: Ctx, tries: u32| {
        let patient = Retry::fixed(HOUR).tries(tries);
        let body = async |step: onward::Step| match step.try_number() {
            last if last == tries => Ok(last),
            _ => Err(Failure::new("not yet")),
        };
        ctx.step("shaky", body).retry(patient).await
    };
    onward.worker().serve(SHAKY, function).start().await.unwrap();
    let begin = onward.now();
    let run = onward.start(SHAKY, &5).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 5);
    assert_eq!(onward.now(), begin + 4 * HOUR);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_delayed_start_waits_for_its_time() {
    let onward = napping().await;
    let begin = onward.now();
    let run = onward.start(NAP, &vec![]).delay(3 * DAY).await.unwrap();
    run.result().await.unwrap();
    assert_eq!(onward.now(), begin + 3 * DAY);
}

#[tokio::test]
async fn a_deadline_can_pass_while_a_service_hangs() {
    let onward = TestOnward::new().await.unwrap();
    let hangs = async |ctx: Ctx, ()| {
        let never = async |step: onward::Step| {
            step.cancelled().await;
            Err(Failure::new("it was time to stop"))
        };
        ctx.step("hang", never).await
    };
    let worker = onward.worker().serve(HELD, hangs).start().await.unwrap();
    let run = onward.start(HELD, &()).timeout(HOUR).await.unwrap();
    while run.status().await.unwrap().state != RunState::Running {
        tokio::task::yield_now().await;
    }
    onward.clock().advance(HOUR);
    let error = run.result().await.unwrap_err();
    assert_eq!(error.code(), Code::RunFailed);
    assert!(error.failure().unwrap().is("deadline_exceeded"), "{error}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn workers_keep_their_leases_over_a_jump() {
    let onward = napping().await;
    let second = onward.worker().serve(NAP, nap).start().await.unwrap();
    let runs: Vec<_> = (0..10).map(|hours| onward.start(NAP, &vec![hours, 900])).collect();
    let runs = futures::future::try_join_all(runs.into_iter().map(IntoFuture::into_future));
    for run in runs.await.unwrap() {
        run.result().await.unwrap();
        let history = run.history().await.unwrap();
        assert!(history.len() == 2, "no attempt was lost: {history:?}");
    }
    assert_eq!(onward.stats().await.unwrap().workers.len(), 2);
    second.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_test_chooses_where_its_clock_begins() {
    let leap_day = Timestamp::from_millis(1_709_164_800_000);
    let onward = TestOnward::at(leap_day).await.unwrap();
    onward.worker().serve(NAP, nap).start().await.unwrap();
    let run = onward.start(NAP, &vec![24]).await.unwrap();
    assert_eq!(run.result().await.unwrap(), [leap_day + DAY]);
}

const EXPENSE: Workflow<(), String> = Workflow::named("expense");

async fn expense(ctx: Ctx, (): ()) -> Result<String, Failure> {
    tokio::select! {
        by = ctx.signal::<String>("approved") => Ok(format!("approved by {}", by?)),
        () = ctx.sleep(7 * DAY) => Ok("nobody looked at it".to_owned()),
    }
}

#[tokio::test]
async fn a_signal_comes_before_its_deadline_or_after_it() {
    let onward = TestOnward::new().await.unwrap();
    onward.worker().serve(EXPENSE, expense).start().await.unwrap();
    let begin = onward.now();
    let run = onward.start(EXPENSE, &()).await.unwrap();
    onward.advance(6 * DAY).await;
    assert_eq!(run.status().await.unwrap().state, RunState::Waiting);
    run.signal("approved", "Ada").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "approved by Ada");
    assert_eq!(onward.now(), begin + 6 * DAY, "a signal takes no time");

    let late = onward.start(EXPENSE, &()).await.unwrap();
    assert_eq!(late.result().await.unwrap(), "nobody looked at it");
    assert_eq!(onward.now(), begin + 13 * DAY);
}

#[tokio::test]
async fn a_signal_that_is_sent_beside_the_wait_comes_before_its_deadline() {
    for _ in 0..100 {
        let onward = TestOnward::new().await.unwrap();
        onward.worker().serve(EXPENSE, expense).start().await.unwrap();
        let run = onward.start(EXPENSE, &()).await.unwrap();
        let sent = run.signal("approved", "Ada").into_future();
        let (result, sent) = tokio::join!(run.result(), sent);
        sent.unwrap();
        assert_eq!(result.unwrap(), "approved by Ada");
    }
}

const PARENT: Workflow<(), Vec<Timestamp>> = Workflow::named("parent");

#[tokio::test]
async fn a_child_sleeps_while_its_parent_waits() {
    let onward = TestOnward::new().await.unwrap();
    let parent = async |ctx: Ctx, ()| ctx.start(NAP, &vec![5]).result().await;
    onward.worker().serve(NAP, nap).serve(PARENT, parent).start().await.unwrap();
    let begin = onward.now();
    let run = onward.start(PARENT, &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), [begin + 5 * HOUR]);
}
