//! Waiting for signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward::store::MemoryStore;
use onward::{Clock, Code, Ctx, Entry, Failure, Onward, RunState, TestClock, Worker, Workflow};

use crate::stores::{on_each_store, until_state};

const ASK: Workflow<(), String> = Workflow::named("ask");

/// A lingering time that parks a run as good as at once.
const NO_LINGER: Duration = Duration::from_millis(1);

async fn ask(ctx: Ctx, (): ()) -> Result<String, Failure> {
    ctx.signal::<String>("answer").await
}

async fn serve(onward: &Onward, linger: Duration) -> Worker {
    onward.worker().serve(ASK, ask).linger(linger).start().await.unwrap()
}

#[tokio::test]
async fn a_signal_reaches_a_run_that_lingers() {
    on_each_store(async |onward| {
        let worker = serve(&onward, Duration::from_secs(60)).await;
        let run = onward.start(ASK, &()).await.unwrap();
        until_state(&run, RunState::Running).await;
        run.signal("answer", "yes").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "yes");
        assert_eq!(run.status().await.unwrap().attempt, 1, "it was never parked");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_signal_wakes_a_parked_run() {
    on_each_store(async |onward| {
        let worker = serve(&onward, NO_LINGER).await;
        let run = onward.start(ASK, &()).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        assert_eq!(run.why().await.unwrap().to_string(), "It waits for the signal \"answer\".");
        run.signal("answer", "yes").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "yes");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_signal_sent_before_anybody_waits_is_kept() {
    on_each_store(async |onward| {
        let run = onward.start(ASK, &()).await.unwrap();
        run.signal("answer", "early").await.unwrap();
        let worker = serve(&onward, NO_LINGER).await;
        assert_eq!(run.result().await.unwrap(), "early");
        let history = run.history().await.unwrap();
        assert_eq!(history[0].step, "$signal/answer#1");
        assert!(matches!(history[0].entry, Entry::Arrived(_)));
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn signals_that_nothing_takes_are_told_and_the_one_that_was_taken_is_not() {
    on_each_store(async |onward| {
        let run = onward.start(ASK, &()).await.unwrap();
        let untaken = async || {
            let signals = run.signals_untaken().await.unwrap();
            let told = signals.iter().map(|it| format!("{} {}", it.name, it.body.as_str()));
            told.collect::<Vec<_>>()
        };
        assert!(untaken().await.is_empty());
        for (name, value) in [("anser", "typo"), ("answer", "first"), ("answer", "second")] {
            run.signal(name, value).await.unwrap();
        }
        assert_eq!(untaken().await.len(), 3);
        let worker = serve(&onward, NO_LINGER).await;
        assert_eq!(run.result().await.unwrap(), "first");
        assert_eq!(untaken().await, [r#"anser "typo""#, r#"answer "second""#]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Its end came, and nobody waits for it yet.
#[tokio::test]
async fn the_end_of_a_child_is_no_signal_that_somebody_sent() {
    const CHILD: Workflow<(), ()> = Workflow::named("child");
    const PARENT: Workflow<(), ()> = Workflow::named("parent");
    on_each_store(async |onward| {
        let parent = async |ctx: Ctx, ()| {
            let child = ctx.start(CHILD, &()).await?;
            ctx.signal::<()>("go").await?;
            child.result().await
        };
        let child = async |_: Ctx, ()| Ok::<_, Failure>(());
        let worker = onward.worker().serve(CHILD, child).serve(PARENT, parent).linger(NO_LINGER);
        let worker = worker.start().await.unwrap();
        let run = onward.start(PARENT, &()).await.unwrap();
        let told = async {
            while run.status().await.unwrap().signals == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), told).await.unwrap();
        assert_eq!(run.signals_untaken().await.unwrap(), []);
        run.signal("go", &()).await.unwrap();
        run.result().await.unwrap();
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_signal_that_comes_after_the_limit_is_for_the_next_wait() {
    const TWICE: Workflow<(), (Option<u32>, u32)> = Workflow::named("twice");
    async fn twice(ctx: Ctx, (): ()) -> Result<(Option<u32>, u32), Failure> {
        let first = ctx.signal("go").timeout(Duration::from_millis(50)).await?;
        Ok((first, ctx.signal("go").await?))
    }
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().serve(TWICE, twice).linger(Duration::ZERO);
        let worker = worker.start().await.unwrap();
        let run = onward.start(TWICE, &()).await.unwrap();
        worker.shutdown().await.unwrap();
        // No worker sees the time pass.
        tokio::time::sleep(Duration::from_millis(100)).await;
        run.signal("go", &7).await.unwrap();
        let worker = onward.worker().serve(TWICE, twice).start().await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        assert_eq!(ended.unwrap().unwrap(), (None, 7));
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A future that has ended may stay where it was made: it is not first in line any more.
#[tokio::test]
async fn a_wait_whose_limit_passed_hears_nothing_while_it_is_kept() {
    const KEPT: Workflow<(), u32> = Workflow::named("kept");
    async fn kept(ctx: Ctx, (): ()) -> Result<u32, Failure> {
        let mut first = ctx.signal::<u32>("go").timeout(Duration::from_millis(20));
        assert_eq!((&mut first).await?, None);
        let second = ctx.signal("go").await;
        drop(first);
        second
    }
    on_each_store(|onward: Onward| async move {
        // It stays in memory while it waits, so that the signal meets both.
        let worker = onward.worker().serve(KEPT, kept).linger(Duration::from_secs(60));
        let worker = worker.start().await.unwrap();
        let run = onward.start(KEPT, &()).await.unwrap();
        let limit_passed = async {
            while run.history().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), limit_passed).await.unwrap();
        run.signal("go", &7).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        assert_eq!(ended.unwrap().unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_signal_after_the_end_is_refused() {
    on_each_store(async |onward| {
        let worker = serve(&onward, NO_LINGER).await;
        let run = onward.start(ASK, &()).await.unwrap();
        run.signal("answer", "yes").key("click").await.unwrap();
        run.result().await.unwrap();
        let late = run.signal("answer", "no").await.unwrap_err();
        assert_eq!((late.code(), late.run()), (Code::RunFinished, Some(run.id())));
        // The same click again is not late: it was delivered.
        run.signal("answer", "yes").key("click").await.unwrap();
        let other = run.signal("answer", "no").key("click").await.unwrap_err();
        assert_eq!(other.code(), Code::KeyConflict);
        worker.shutdown().await.unwrap();
    })
    .await;
}

const TWICE: Workflow<(), Vec<Option<u32>>> = Workflow::named("twice");

/// The second wait's limit has passed when the first one's answer comes late.
async fn twice(ctx: Ctx, (): ()) -> Result<Vec<Option<u32>>, Failure> {
    let short = Duration::from_millis(30);
    let first = ctx.signal::<u32>("number").timeout(short).await?;
    let second = ctx.signal::<u32>("number").timeout(Duration::from_secs(60)).await?;
    Ok(vec![first, second])
}

#[tokio::test]
async fn a_wait_with_a_limit_gives_nothing_when_it_is_over() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(TWICE, twice).linger(NO_LINGER).start().await.unwrap();
        let run = onward.start(TWICE, &()).await.unwrap();
        let timer = async {
            loop {
                let history = run.history().await.unwrap();
                if history.iter().any(|record| record.step == "$timeout/number") {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), timer).await.unwrap();
        run.signal("number", &7).await.unwrap();
        assert_eq!(run.result().await.unwrap(), [None, Some(7)]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

const LOOP: Workflow<u32, u32> = Workflow::named("loop");

async fn count(ctx: Ctx, sum: u32) -> Result<u32, Failure> {
    match ctx.signal::<u32>("add").await? {
        0 => Ok(sum),
        number => ctx.continue_as(LOOP, &(sum + number)),
    }
}

#[tokio::test]
async fn a_run_that_goes_on_as_another_loses_no_signal() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(LOOP, count).linger(NO_LINGER).start().await.unwrap();
        let run = onward.start(LOOP, &0).await.unwrap();
        for number in [1, 2, 3, 4, 0] {
            run.signal("add", &number).await.unwrap();
        }
        assert_eq!(run.result().await.unwrap(), 10);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_does_not_fit_the_type_stops_the_run_visibly() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = serve(&onward, NO_LINGER).await;
    let run = onward.start(ASK, &()).await.unwrap();
    run.signal("answer", &42).await.unwrap();
    until_state(&run, RunState::Waiting).await;
    let why = run.why().await.unwrap().to_string();
    assert!(why.contains("type_mismatch"), "{why}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_reaches_a_run_that_waits_for_a_signal() {
    on_each_store(async |onward| {
        for linger in [NO_LINGER, Duration::from_secs(60)] {
            let worker = serve(&onward, linger).await;
            let run = onward.start(ASK, &()).await.unwrap();
            let state = if linger == NO_LINGER { RunState::Waiting } else { RunState::Running };
            until_state(&run, state).await;
            run.cancel().await.unwrap();
            assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
            worker.shutdown().await.unwrap();
        }
    })
    .await;
}

const CONFIRM: Workflow<(), Option<String>> = Workflow::named("confirm");

#[tokio::test]
async fn a_callback_is_answered_once() {
    on_each_store(async |onward| {
        let (tokens, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let confirm = move |ctx: Ctx, (): ()| {
            let tokens = tokens.clone();
            async move {
                let callback = ctx.callback::<String>().await?;
                let token = callback.token();
                ctx.step("ask", async |_| Ok::<_, Failure>(tokens.send(token.clone())?)).await?;
                callback.result().await
            }
        };
        let worker = onward.worker().serve(CONFIRM, confirm).linger(NO_LINGER);
        let worker = worker.start().await.unwrap();
        let run = onward.start(CONFIRM, &()).await.unwrap();
        let token = asked.recv().await.unwrap();
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'), "{token}");
        until_state(&run, RunState::Waiting).await;
        let guessed = format!("{}0", &token[..token.len() - 1]);
        for unknown in ["", "x.1.y", &guessed, &token[1..]] {
            if unknown != token {
                let refused = onward.resolve(unknown, "no").await.unwrap_err();
                assert_eq!(refused.code(), Code::CallbackUnknown, "{unknown}");
            }
        }
        onward.resolve(&token, "yes").await.unwrap();
        onward.resolve(&token, "yes").await.unwrap();
        let other = onward.resolve(&token, "no").await.unwrap_err();
        assert_eq!(other.code(), Code::CallbackUsed);
        assert_eq!(run.result().await.unwrap().as_deref(), Some("yes"));
        let forged = run.signal("$callback/1", "no").await.unwrap_err();
        assert_eq!(forged.code(), Code::InvalidName);
        worker.shutdown().await.unwrap();
    })
    .await;
}

const HURRY: Workflow<(), (String, Option<u32>)> = Workflow::named("hurry");

#[tokio::test]
async fn a_callback_expires() {
    let onward = Onward::open("memory:").await.unwrap();
    let hurry = async |ctx: Ctx, (): ()| {
        let callback = ctx.callback::<u32>().valid_for(Duration::from_millis(20)).await?;
        let token = callback.token();
        Ok::<_, Failure>((token, callback.result().await?))
    };
    let worker = onward.worker().serve(HURRY, hurry).start().await.unwrap();
    let run = onward.start(HURRY, &()).await.unwrap();
    let (token, answer) = run.result().await.unwrap();
    assert_eq!(answer, None);
    let late = onward.resolve(&token, &1).await.unwrap_err();
    assert_eq!(late.code(), Code::CallbackExpired);
    worker.shutdown().await.unwrap();
}

/// However often a run is woken and replayed, by whichever process, the time of its wait counts from when
/// it first waited.
#[tokio::test]
async fn a_time_limit_is_the_same_in_every_replay() {
    const WITHIN: Workflow<(), Option<u32>> = Workflow::named("within");
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let serve = async || {
        let within = async |ctx: Ctx, ()| ctx.signal::<u32>("never").timeout(HOUR).await;
        let onward = Onward::with_store(store.clone());
        let worker = onward.worker().serve(WITHIN, within).linger(Duration::ZERO);
        (onward.clone(), worker.start().await.unwrap())
    };
    let (onward, mut worker) = serve().await;
    let run = onward.start(WITHIN, &()).await.unwrap();
    let due = Some(clock.now() + HOUR);
    for attempt in 1..=3 {
        let waits = async || {
            let run = run.status().await.unwrap();
            run.state == RunState::Waiting && run.attempt == attempt
        };
        while !waits().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(run.status().await.unwrap().due_at, due, "in attempt {attempt}");
        worker.shutdown().await.unwrap();
        clock.advance(HOUR / 4);
        run.signal("other", &1).await.unwrap();
        worker = serve().await.1;
    }
    clock.advance(HOUR / 4);
    assert_eq!(run.result().await.unwrap(), None);
    worker.shutdown().await.unwrap();
}

/// The time of a wait is not begun anew by a crash or by a retry: what ran out has run out, and what came
/// in time is not waited for again.
#[tokio::test]
async fn a_time_limit_holds_over_a_retry() {
    const ASK: Workflow<(), Vec<Option<u32>>> = Workflow::named("ask within");
    on_each_store(async |onward| {
        let mended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&mended);
        let day = Duration::from_secs(24 * 60 * 60);
        let ask = move |ctx: Ctx, ()| {
            let flag = Arc::clone(&flag);
            async move {
                let late = ctx.signal::<u32>("late").timeout(Duration::from_millis(1)).await?;
                let early = ctx.signal::<u32>("early").timeout(day).await?;
                ctx.step("use", async |_| match flag.load(Ordering::SeqCst) {
                    true => Ok(()),
                    false => Err(Failure::fatal("not yet")),
                })
                .await?;
                Ok(vec![late, early])
            }
        };
        let worker = onward.worker().serve(ASK, ask).linger(Duration::ZERO).start().await.unwrap();
        let run = onward.start(ASK, &()).await.unwrap();
        run.signal("early", &7).await.unwrap();
        assert_eq!(run.ended().await.unwrap().state, RunState::Failed);
        mended.store(true, Ordering::SeqCst);
        run.retry().await.unwrap();
        assert_eq!(run.result().await.unwrap(), [None, Some(7)]);
        let history = run.history().await.unwrap();
        let limits = history.iter().filter(|record| record.step.starts_with("$timeout/"));
        assert_eq!(limits.count(), 1, "only the one that ran out: {history:?}");
        worker.shutdown().await.unwrap();
    })
    .await;
}
