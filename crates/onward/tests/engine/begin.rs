//! What may begin, and what may not yet: nothing before what it rests on is on disk.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::conformance::Held;
use onward::{Code, Ctx, Failure, Retry, RunState, Waits, Workflow};

use crate::process::Process;
use crate::stores::{on_each_clocked_store, on_each_store, until_state};

const WORK: Workflow<(), ()> = Workflow::named("work");

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Lets everything of this thread do what it can.
async fn all_rest() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), waiting).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_try_begins_after_the_failure_before_it_is_recorded() {
    on_each_clocked_store(async |store, clock| {
        let Process { store, onward } = Process::on(&store);
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let step = ctx.step("charge", async |step| {
                    log.add(step.try_number().to_string());
                    Err::<(), _>(Failure::new("busy"))
                });
                step.retry(Retry::fixed(Duration::from_millis(100)).tries(3)).await
            }
        });
        let worker = worker.start().await.unwrap();
        store.hold(Held::Records);
        let run = onward.start(WORK, &()).await.unwrap();
        until("its failure is on its way", || store.asked(Held::Records) == 1).await;
        clock.advance(Duration::from_secs(1));
        all_rest().await;
        assert_eq!(log.lines(), ["1"], "a crash now would leave a try that nobody counts");
        store.let_go(Held::Records);
        let ended = run.ended();
        tokio::pin!(ended);
        let state = loop {
            tokio::select! {
                ended = &mut ended => break ended.unwrap().state,
                () = all_rest() => clock.advance(Duration::from_secs(1)),
            }
        };
        assert_eq!(state, RunState::Failed);
        assert_eq!(log.lines(), ["1", "2", "3"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Polls both once, then the first until it is done, and only then the second.
async fn one_then_the_other<T, U>(
    mut one: impl Future<Output = T> + Unpin,
    mut other: impl Future<Output = U> + Unpin,
) -> (T, U) {
    let mut polled = false;
    let first = poll_fn(|cx| {
        let first = Pin::new(&mut one).poll(cx);
        if !std::mem::replace(&mut polled, true) {
            assert!(Pin::new(&mut other).poll(cx).is_pending());
        }
        first
    });
    (first.await, other.await)
}

/// The second may begin at its next poll, which comes only when the first is done: then it follows
/// from a result that a crash would take back.
#[tokio::test]
async fn a_step_that_may_begin_waits_for_the_result_that_leads_to_its_poll() {
    on_each_clocked_store(async |store, _clock| {
        let Process { store, onward } = Process::on(&store);
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let [one, other] = ["one", "other"].map(|name| {
                    let log = log.clone();
                    ctx.step(name, move |_| {
                        log.add(name);
                        std::future::ready(Ok::<_, Failure>(()))
                    })
                });
                let (one, other) = one_then_the_other(one, other).await;
                one.and(other)
            }
        });
        let worker = worker.start().await.unwrap();
        store.hold(Held::Records);
        let run = onward.start(WORK, &()).await.unwrap();
        until("the first result is on its way", || store.asked(Held::Records) == 1).await;
        all_rest().await;
        assert_eq!(log.lines(), ["one"]);
        store.let_go(Held::Records);
        run.result().await.unwrap();
        assert_eq!(log.lines(), ["one", "other"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Executes a function until it waits for the signal `go`, and then one under the same build that returns at
/// once.
async fn returns_early_after(onward: onward::Onward, before: &'static str) {
    let early = Arc::new(AtomicBool::new(false));
    let returns_early = Arc::clone(&early);
    let worker = onward.worker().build("same").linger(Duration::ZERO);
    let worker = worker.serve(CHILD, async |_: Ctx, ()| Ok::<_, Failure>(1));
    let worker = worker.serve(WORK, move |ctx: Ctx, ()| {
        let returns_early = returns_early.load(Ordering::SeqCst);
        async move {
            if returns_early {
                return Ok(());
            }
            match before {
                "a step" => ctx.step("charge", async |_| Ok::<_, Failure>(())).await?,
                "a signal" => ctx.signal("paid").await?,
                _ => ctx.start(CHILD, &()).result().await.map(drop)?,
            }
            ctx.signal("go").await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    run.signal("paid", &()).await.unwrap();
    let waits_for_go = |waits: &Waits| matches!(waits, Waits::Signal { name, .. } if name == "go");
    until_waits(&run, waits_for_go).await;
    early.store(true, Ordering::SeqCst);
    run.signal("go", &()).await.unwrap();
    let is_stuck = |waits: &Waits| matches!(waits, Waits::Stuck { code, .. } if code == Code::HistoryMismatch.as_str());
    until_waits(&run, is_stuck).await;
    worker.shutdown().await.unwrap();
}

async fn until_waits(run: &onward::RunHandle<()>, waits: impl Fn(&Waits) -> bool) {
    let waiting = async {
        loop {
            let status = run.status().await.unwrap();
            if status.state == RunState::Waiting && status.waits_for.as_ref().is_some_and(&waits) {
                return;
            }
            assert_ne!(status.state, RunState::Completed);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "{:?}", run.status().await);
}

/// The function knows what it did before, and does not ask for it again.
#[tokio::test]
async fn a_replay_that_returns_early_is_stopped() {
    on_each_store(async |onward| returns_early_after(onward, "a step").await).await;
}

/// A signal and the end of a child belong to no step, but none is recorded without a wait for it.
#[tokio::test]
async fn a_replay_that_returns_before_what_it_received_is_stopped() {
    on_each_store(async |onward| returns_early_after(onward, "a signal").await).await;
    on_each_store(async |onward| returns_early_after(onward, "a child").await).await;
}

const CHILD: Workflow<(), u32> = Workflow::named("child");
const PARENT: Workflow<(), u32> = Workflow::named("parent");

/// The parent was paused when the child ended, so that the end is not in its history; then the child was
/// deleted. `starts`: whether the parent asks for the start of its child then, and not only for its result.
async fn deletes_a_child_that_ended(onward: onward::Onward, starts: bool) {
    let executed = Arc::new(AtomicU32::new(0));
    let of = Arc::clone(&executed);
    let child = move |ctx: Ctx, ()| {
        let executed = Arc::clone(&of);
        async move {
            let count = async |_| Ok::<_, Failure>(executed.fetch_add(1, Ordering::SeqCst) + 1);
            let count = ctx.step("count", count).await?;
            ctx.signal::<()>("go").await?;
            Ok(count)
        }
    };
    let code = child.clone();
    let parent = async |ctx: Ctx, ()| ctx.start(CHILD, &()).result().await;
    let worker = onward.worker().serve(CHILD, child).serve(PARENT, parent);
    let mut worker = worker.linger(Duration::ZERO).start().await.unwrap();
    let run = onward.start(PARENT, &()).await.unwrap();
    until_state(&run, RunState::Waiting).await;
    run.pause().await.unwrap();
    let Some(Waits::Child { run: child }) = run.status().await.unwrap().waits_for else {
        panic!("{:?}", run.status().await)
    };
    let child = onward.run(child);
    child.signal("go", &()).await.unwrap();
    assert_eq!(child.result().await.unwrap().as_str(), "1");
    child.delete().await.unwrap();
    if starts {
        worker.shutdown().await.unwrap();
        // That the child is started is recorded by this one, and was not before.
        let parent = async |ctx: Ctx, ()| ctx.start(CHILD, &()).await?.result().await;
        let next = onward.worker().build("next").serve(CHILD, code).serve(PARENT, parent);
        worker = next.start().await.unwrap();
    }
    run.resume().await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
    assert_eq!(result.expect("it waits for a second child").unwrap(), 1);
    assert_eq!(child.status().await.unwrap_err().code(), Code::RunNotFound);
    assert_eq!(executed.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_that_is_gone_is_not_executed_again() {
    on_each_store(async |onward| deletes_a_child_that_ended(onward, false).await).await;
    on_each_store(async |onward| deletes_a_child_that_ended(onward, true).await).await;
}

/// The signal was accepted in time, and the look that would find it is slow.
#[tokio::test]
async fn a_wait_ends_without_its_signal_only_after_a_look_since_its_limit() {
    on_each_clocked_store(async |store, clock| {
        const ASK: Workflow<(), Option<u32>> = Workflow::named("ask");
        let Process { store, onward } = Process::on(&store);
        let ask = async |ctx: Ctx, ()| ctx.signal("go").timeout(Duration::from_secs(60)).await;
        let worker = onward.worker().serve(ASK, ask).linger(Duration::from_secs(3600));
        let worker = worker.start().await.unwrap();
        store.hold(Held::Looks);
        let run = onward.start(ASK, &()).await.unwrap();
        until("it looks", || store.asked(Held::Looks) == 1).await;
        clock.advance(Duration::from_secs(59));
        run.signal("go", &7).await.unwrap();
        clock.advance(Duration::from_secs(2));
        all_rest().await;
        assert_eq!(run.status().await.unwrap().state, RunState::Running, "it has not looked since");
        store.let_go(Held::Looks);
        assert_eq!(run.result().await.unwrap(), Some(7));
        // One that came too late is not for it.
        let run = onward.start(ASK, &()).await.unwrap();
        until("it looks", || store.asked(Held::Looks) > 2).await;
        all_rest().await;
        clock.advance(Duration::from_secs(61));
        assert_eq!(run.result().await.unwrap(), None);
        worker.shutdown().await.unwrap();
    })
    .await;
}
