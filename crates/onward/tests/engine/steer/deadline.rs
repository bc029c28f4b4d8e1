//! Deadlines: of runs that no worker can claim, of children, after a retry and over continuations; and
//! that a cancel and a deadline reach children while their parent goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Filter, Onward, Query, RunHandle, RunState, Workflow};
use tokio::sync::Notify;

use crate::stores::{on_each_store, until_state};

const WORK: Workflow<(), u32> = Workflow::named("work");
const OTHER: Workflow<(), u32> = Workflow::named("other");

/// How long a deadline is given: a run is to be started before, whatever else the machine does.
const TIMEOUT: Duration = Duration::from_millis(700);

/// Asserts that a run fails for its deadline, soon.
async fn assert_late(run: &RunHandle<u32>, about: &str) {
    let ended = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
    let Ok(ended) = ended else { panic!("{about}: {:?}", run.status().await) };
    let error = ended.unwrap_err();
    let failure = error.failure().unwrap_or_else(|| panic!("{about}: {error}"));
    assert!(failure.is(Code::DeadlineExceeded.as_str()), "{about}: {error}");
}

#[tokio::test]
async fn a_deadline_holds_for_a_run_that_cannot_be_claimed() {
    on_each_store(async |onward| {
        onward.queue("paused").pause().await.unwrap();
        onward.queue("full").concurrency(1).save().await.unwrap();
        let worker = onward.worker().lease(Duration::from_secs(2)).concurrency(2);
        let worker =
            worker.queues(["default", "paused", "full"]).serve(WORK, async |ctx: Ctx, ()| {
                let hold = ctx.step("hold", async |step| {
                    step.cancelled().await;
                    Err::<u32, _>(Failure::fatal("stopped"))
                });
                hold.await
            });
        let worker = worker.start().await.unwrap();
        let full = onward.start(WORK, &()).queue("full").await.unwrap();
        until_state(&full, RunState::Running).await;
        let late = || onward.start(WORK, &()).timeout(TIMEOUT);
        let behind = late().queue("full").await.unwrap();
        assert_late(&behind, "its queue is full").await;
        let slot = onward.start(WORK, &()).await.unwrap();
        until_state(&slot, RunState::Running).await;
        let runs = [
            (late().await.unwrap(), "all places are taken"),
            (late().queue("paused").await.unwrap(), "its queue is paused"),
            (late().queue("nowhere").await.unwrap(), "nobody serves its queue"),
            (onward.start(OTHER, &()).timeout(TIMEOUT).await.unwrap(), "nobody serves it"),
        ];
        for (run, about) in &runs {
            assert_late(run, about).await;
            assert_eq!(run.status().await.unwrap().attempt, 0, "{about}");
        }
        for run in [full, slot] {
            assert_eq!(run.status().await.unwrap().state, RunState::Running);
            run.cancel().await.unwrap();
            run.ended().await.unwrap();
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_late_run_that_cannot_be_claimed_is_undone_when_it_can() {
    on_each_store(async |onward| {
        let undone = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&undone);
        let worker = onward.worker().lease(Duration::from_secs(2)).linger(Duration::ZERO);
        let worker = worker.queues(["bulk"]).serve(WORK, move |ctx: Ctx, ()| {
            let counted = Arc::clone(&counted);
            async move {
                let charge = ctx.step("charge", async |_| Ok::<_, Failure>(7));
                let charge = charge.undo(move |_, _| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    std::future::ready(Ok::<_, Failure>(()))
                });
                charge.await?;
                ctx.signal::<u32>("never").await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).queue("bulk").timeout(TIMEOUT).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        let queue = onward.queue("bulk");
        queue.pause().await.unwrap();
        // A run without anything to undo, and with a later deadline, says that a sweep has been there.
        let other = onward.start(WORK, &()).queue("bulk").timeout(TIMEOUT).await.unwrap();
        assert_late(&other, "nothing to undo").await;
        assert_eq!(run.status().await.unwrap().state, RunState::Queued);
        assert_eq!(undone.load(Ordering::SeqCst), 0);
        queue.resume().await.unwrap();
        assert_late(&run, "undone").await;
        assert_eq!(undone.load(Ordering::SeqCst), 1);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Runs a parent that is asked to end by `ask`, whose body goes on until its child has ended, and says
/// whether it came to that.
async fn child_ends_first(
    onward: &Onward,
    timeout: Option<Duration>,
    ask: impl AsyncFn(&RunHandle<u32>),
) -> (bool, RunState) {
    let (seen, client) = (Arc::new(AtomicBool::new(false)), onward.clone());
    let (flag, begun) = (Arc::clone(&seen), Arc::new(Notify::new()));
    let begin = Arc::clone(&begun);
    let worker = onward.worker().lease(Duration::from_secs(2)).linger(Duration::ZERO);
    let worker = worker.cancel_grace(Duration::from_secs(6));
    let worker = worker.serve(OTHER, async |ctx: Ctx, ()| ctx.signal::<u32>("never").await);
    let worker = worker.serve(WORK, move |ctx: Ctx, ()| {
        let (flag, client, begin) = (Arc::clone(&flag), client.clone(), Arc::clone(&begin));
        async move {
            let child = ctx.start(OTHER, &()).await?.id();
            let wait = ctx.step("wait", async |_| {
                begin.notify_one();
                client.run(child).ended().await?;
                flag.store(true, Ordering::SeqCst);
                Ok::<_, Failure>(0)
            });
            wait.await
        }
    });
    let worker = worker.start().await.unwrap();
    let mut run = onward.start(WORK, &());
    if let Some(timeout) = timeout {
        run = run.timeout(timeout);
    }
    let run = run.await.unwrap();
    let filter = Filter { workflow: Some("other".to_owned()), ..Filter::default() };
    let child = loop {
        let found =
            onward.list(Query { filter: filter.clone(), ..Query::default() }).await.unwrap();
        match found.runs.first() {
            Some(child) => break onward.run(child.id),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    // Without a body there is no grace.
    begun.notified().await;
    ask(&run).await;
    run.ended().await.unwrap();
    let child = child.status().await.unwrap();
    worker.shutdown().await.unwrap();
    (seen.load(Ordering::SeqCst), child.state)
}

#[tokio::test]
async fn a_cancel_reaches_children_while_their_parent_has_its_grace() {
    on_each_store(async |onward| {
        let ended = child_ends_first(&onward, None, async |run| {
            until_state(run, RunState::Running).await;
            run.cancel().await.unwrap();
        });
        assert_eq!(ended.await, (true, RunState::Cancelled));
    })
    .await;
}

#[tokio::test]
async fn a_deadline_reaches_children_while_their_parent_has_its_grace() {
    on_each_store(async |onward| {
        let timeout = Some(Duration::from_secs(2));
        let ended = child_ends_first(&onward, timeout, async |_| {});
        assert_eq!(ended.await, (true, RunState::Failed));
    })
    .await;
}

#[tokio::test]
async fn a_retried_run_has_its_whole_time_again() {
    on_each_store(async |onward| {
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let worker = onward.worker().cancel_grace(Duration::from_millis(50));
        let worker = worker.serve(WORK, move |ctx: Ctx, ()| {
            let counted = Arc::clone(&counted);
            async move {
                let step = ctx.step("call", async |_| {
                    if counted.fetch_add(1, Ordering::SeqCst) < 2 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>(7)
                });
                step.await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).timeout(TIMEOUT).await.unwrap();
        assert_late(&run, "at first").await;
        run.retry().await.unwrap();
        assert_late(&run, "retried").await;
        run.retry().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        let run = run.status().await.unwrap();
        assert!(run.deadline_at.unwrap() > run.created_at + TIMEOUT * 2, "{run:?}");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_endless_loop_ends_at_the_deadline_of_its_first_run() {
    on_each_store(async |onward| {
        let worker =
            onward.worker().lease(Duration::from_secs(2)).serve(WORK, async |ctx: Ctx, ()| {
                ctx.step("look", async |_| Ok::<_, Failure>(1)).await?;
                ctx.sleep(Duration::from_millis(30)).await;
                ctx.continue_as(WORK, &())
            });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).timeout(TIMEOUT).await.unwrap();
        let deadline = run.status().await.unwrap().deadline_at;
        assert_late(&run, "it went on and on").await;
        let query = Query { limit: 100, ..Query::default() };
        let runs = onward.list(query).await.unwrap().runs;
        assert!(runs.len() > 2, "it went on");
        assert!(runs.iter().all(|run| run.deadline_at == deadline), "{runs:?}");
        worker.shutdown().await.unwrap();
    })
    .await;
}
