//! What a crash, a shutdown or other code on the way back does.

use std::sync::Arc;
use std::time::Duration;

use onward::conformance::Held;
use onward::store::Store;
use onward::{
    Code, Ctx, Failure, Filter, Query, RunHandle, RunId, RunState, Waits, WorkerBuilder, Workflow,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{Log, WORK, steps_of, undoing};
use crate::process::{Process, data};
use crate::stores::until_state;

const CHILD: Workflow<(), ()> = Workflow::named("child");

/// Steps a, b and c, then a failure; the undo of b waits until all are let go.
fn serve_held(process: &Process, log: &Log, hold: &Arc<Semaphore>) -> WorkerBuilder {
    let (of, hold) = (log.clone(), Arc::clone(hold));
    process.onward.worker().build("v1").serve(WORK, move |ctx: Ctx, ()| {
        let (log, hold) = (of.clone(), Arc::clone(&hold));
        async move {
            log.step(&ctx, "a", 1).await?;
            let of = log.clone();
            let b = ctx.step("b", async |_| Ok::<_, Failure>(2)).undo(move |_, step| {
                let (log, hold) = (of.clone(), Arc::clone(&hold));
                async move {
                    log.add("undo b begins");
                    tokio::select! {
                        _ = hold.acquire() => log.add("undo b"),
                        () = step.cancelled() => log.add("undo b cancelled"),
                    }
                    Ok::<_, Failure>(())
                }
            });
            b.await?;
            log.step(&ctx, "c", 3).await?;
            Err(Failure::fatal("no").code("no"))
        }
    })
}

/// A run whose process died in the undo of b.
async fn killed_inside_an_undo(data: &Arc<dyn Store>, log: &Log, hold: &Arc<Semaphore>) -> RunId {
    let first = Process::on(data);
    let worker = serve_held(&first, log, hold).start().await.unwrap();
    let id = first.onward.start(WORK, &()).await.unwrap().id();
    log.until("undo b begins").await;
    first.kill(worker).await;
    id
}

#[tokio::test]
async fn a_crash_inside_an_undo_goes_on_with_it() {
    let (data, log, hold) = (data(), Log::default(), Arc::new(Semaphore::new(0)));
    let id = killed_inside_an_undo(&data, &log, &hold).await;
    let second = Process::on(&data);
    let worker = serve_held(&second, &log, &hold).start().await.unwrap();
    let run: RunHandle<()> = second.onward.run(id).of_type();
    hold.add_permits(1);
    let failure = run.ended().await.unwrap().failure.unwrap();
    assert!(failure.is("no"), "{failure}");
    let of_b = log.lines().iter().filter(|line| *line == "undo b begins").count();
    assert_eq!(of_b, 2, "what was not recorded is executed again");
    for once in ["a", "c", "undo c 3", "undo a 1"] {
        assert_eq!(log.lines().iter().filter(|line| *line == once).count(), 1, "{once}");
    }
    let steps = steps_of(&run).await;
    assert_eq!(steps, ["a", "b", "c", "$undo", "$undo/c", "$undo/b", "$undo/a"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_while_a_failed_run_is_undone_changes_nothing() {
    let (data, log, hold) = (data(), Log::default(), Arc::new(Semaphore::new(0)));
    let process = Process::on(&data);
    let worker = serve_held(&process, &log, &hold).start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    log.until("undo b begins").await;
    run.cancel().await.unwrap();
    // A run that is started later has come as far: the mark has reached the worker.
    let other = process.onward.start(WORK, &()).await.unwrap();
    let began = |log: &Log| log.lines().iter().filter(|line| *line == "undo b begins").count();
    while began(&log) < 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    hold.add_permits(1);
    let failure = run.ended().await.unwrap().failure.unwrap();
    assert!(failure.is("no"), "{failure}");
    other.ended().await.unwrap();
    assert!(!log.lines().contains(&"undo b cancelled".to_owned()));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_deadline_does_not_stop_an_undo() {
    let (data, log, hold) = (data(), Log::default(), Arc::new(Semaphore::new(0)));
    let process = Process::on(&data);
    let worker = serve_held(&process, &log, &hold).cancel_grace(Duration::ZERO);
    let worker = worker.start().await.unwrap();
    let timeout = Duration::from_millis(200);
    let run = process.onward.start(WORK, &()).timeout(timeout).await.unwrap();
    log.until("undo b begins").await;
    let deadline = run.status().await.unwrap().deadline_at.unwrap();
    data.clock().sleep_until(deadline + Duration::from_millis(50)).await;
    hold.add_permits(1);
    let failure = run.ended().await.unwrap().failure.unwrap();
    assert!(failure.is("no"), "{failure}");
    assert!(log.lines().contains(&"undo b".to_owned()), "{:?}", log.lines());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_lets_the_undo_finish_and_another_worker_goes_on() {
    let (data, log, hold) = (data(), Log::default(), Arc::new(Semaphore::new(0)));
    let process = Process::on(&data);
    let worker = serve_held(&process, &log, &hold).start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    log.until("undo b begins").await;
    // The mark of a cancel must not hide that the worker ends.
    run.cancel().await.unwrap();
    let stopping = tokio::spawn(worker.shutdown());
    hold.add_permits(1);
    stopping.await.unwrap().unwrap();
    assert_eq!(run.status().await.unwrap().state, RunState::Queued);
    assert_eq!(undoing(&run).await.left, ["a"]);
    let worker = serve_held(&process, &log, &hold).start().await.unwrap();
    assert!(run.ended().await.unwrap().failure.unwrap().is("no"));
    let undone = ["undo c 3", "undo b begins", "undo b", "undo a 1"];
    assert_eq!(log.lines()[2..], undone);
    worker.shutdown().await.unwrap();
}

fn serve_fewer(process: &Process, build: &str, log: &Log) -> WorkerBuilder {
    let of = log.clone();
    process.onward.worker().build(build).serve(WORK, move |ctx: Ctx, ()| {
        let log = of.clone();
        async move {
            log.step(&ctx, "a", 1).await?;
            log.step(&ctx, "c", 3).await?;
            Err(Failure::fatal("other").code("other"))
        }
    })
}

#[tokio::test]
async fn an_undo_that_new_code_has_no_more_is_listed() {
    let (data, log, hold) = (data(), Log::default(), Arc::new(Semaphore::new(0)));
    let id = killed_inside_an_undo(&data, &log, &hold).await;
    let second = Process::on(&data);
    let worker = serve_fewer(&second, "v2", &log).start().await.unwrap();
    let ended = second.onward.run(id).ended().await.unwrap();
    let failure = ended.failure.unwrap();
    assert!(failure.is(Code::UndoFailed.as_str()), "{failure}");
    let details: Value = failure.details.as_ref().unwrap().read().unwrap();
    assert_eq!(details["left_undone"][0]["step"], "b");
    assert_eq!(details["left_undone"][0]["code"], Code::UndoMissing.as_str());
    assert_eq!(details["failure"]["code"], "no", "the end is the one that was fixed");
    assert!(log.lines().contains(&"undo a 1".to_owned()));
    assert_eq!(ended.code_change.unwrap().unasked, ["b"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_replay_that_goes_another_way_does_not_undo_by_half() {
    let (data, log, hold) = (data(), Log::default(), Arc::new(Semaphore::new(0)));
    let id = killed_inside_an_undo(&data, &log, &hold).await;
    let second = Process::on(&data);
    let worker = serve_fewer(&second, "v1", &log).start().await.unwrap();
    let run: RunHandle<()> = second.onward.run(id).of_type();
    until_state(&run, RunState::Waiting).await;
    let stuck = run.status().await.unwrap().waits_for;
    let mismatch = Code::HistoryMismatch.as_str();
    assert!(matches!(&stuck, Some(Waits::Stuck { code, .. }) if code == mismatch), "{stuck:?}");
    assert!(!log.lines().contains(&"undo a 1".to_owned()));
    // A retry lets it go on with the undo, under the code that can.
    worker.shutdown().await.unwrap();
    run.retry().await.unwrap();
    let worker = serve_held(&second, &log, &hold).start().await.unwrap();
    hold.add_permits(1);
    assert!(run.ended().await.unwrap().failure.unwrap().is("no"));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_ends_what_is_stuck_on_its_way_back_and_tells_what_is_left() {
    let (data, log, hold) = (data(), Log::default(), Arc::new(Semaphore::new(0)));
    let id = killed_inside_an_undo(&data, &log, &hold).await;
    let second = Process::on(&data);
    let worker = serve_fewer(&second, "v1", &log).start().await.unwrap();
    let run: RunHandle<()> = second.onward.run(id).of_type();
    until_state(&run, RunState::Waiting).await;
    run.cancel().await.unwrap();
    let failure = run.ended().await.unwrap().failure.unwrap();
    let details: Value = failure.details.as_ref().unwrap().read().unwrap();
    assert_eq!(details["left_undone"][0]["step"], "b");
    assert_eq!(details["left_undone"][0]["code"], Code::HistoryMismatch.as_str());
    assert!(log.lines().contains(&"undo a 1".to_owned()));
    worker.shutdown().await.unwrap();
}

/// The deadline is only there so that a fault does not hang the suite.
async fn until_asked(process: &Process, held: Held) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while process.store.asked(held) == 0 {
        assert!(tokio::time::Instant::now() < deadline, "nothing was asked");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_cancel_while_a_record_is_on_its_way_is_undone_once_it_is_answered() {
    let (data, log) = (data(), Log::default());
    let process = Process::on(&data);
    let (of, store) = (log.clone(), Arc::clone(&process.store));
    let worker = process.onward.worker().cancel_grace(Duration::from_millis(10));
    let worker = worker.serve(WORK, move |ctx: Ctx, ()| {
        let (log, store) = (of.clone(), Arc::clone(&store));
        async move {
            let _gone = log.at_drop("function gone");
            log.step(&ctx, "a", 1).await?;
            let b = ctx.step("b", async |_| {
                store.hold(Held::Records);
                Ok::<_, Failure>(())
            });
            let endless =
                ctx.step("c", async |_| std::future::pending::<Result<(), Failure>>().await);
            let (b, c) = tokio::join!(b, endless);
            b.and(c)
        }
    });
    let worker = worker.start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    until_asked(&process, Held::Records).await;
    run.cancel().await.unwrap();
    // The grace ends while the answer is held back.
    log.until("function gone").await;
    process.store.let_go(Held::Records);
    let ended = tokio::time::timeout(Duration::from_secs(20), run.ended()).await;
    assert_eq!(ended.expect("it is not held up").unwrap().state, RunState::Cancelled);
    assert_eq!(steps_of(&run).await, ["a", "b", "$undo", "$undo/a"]);
    worker.shutdown().await.unwrap();
}

/// A child, and a step that fails while the start of the child is on its way.
fn serve_parent(process: &Process, log: &Log) -> WorkerBuilder {
    let of = log.clone();
    process.onward.worker().serve(CHILD, async |_: Ctx, ()| Ok(())).serve(
        WORK,
        move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let _gone = log.at_drop("function gone");
                log.step(&ctx, "a", 1).await?;
                let fails = ctx.step("b", async |_| {
                    log.until("child asked").await;
                    Err::<(), _>(Failure::fatal("no"))
                });
                tokio::select! {
                    child = ctx.start(CHILD, &()) => child.map(drop),
                    failed = fails => failed,
                }
            }
        },
    )
}

#[tokio::test]
async fn a_child_whose_start_is_on_its_way_is_there_before_the_undo_begins() {
    let (data, log) = (data(), Log::default());
    let process = Process::on(&data);
    process.store.hold(Held::Children);
    let worker = serve_parent(&process, &log).start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    until_asked(&process, Held::Children).await;
    log.add("child asked");
    log.until("function gone").await;
    process.store.let_go(Held::Children);
    run.ended().await.unwrap();
    let history = run.history().await.unwrap();
    let began = history.iter().find(|record| record.step == "$undo").unwrap();
    let of_child = Filter { workflow: Some(CHILD.name().to_owned()), ..Filter::default() };
    let children =
        process.onward.list(Query { filter: of_child, ..Query::default() }).await.unwrap();
    assert!(children.runs[0].created_at <= began.at, "{children:?}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_whose_start_is_on_its_way_is_there_before_its_parent_ends() {
    let (process, log) = (Process::on(&data()), Log::default());
    process.store.hold(Held::Children);
    let worker = process.onward.worker().cancel_grace(Duration::from_millis(10));
    let of = log.clone();
    let worker = worker.serve(WORK, move |ctx: Ctx, ()| {
        let gone = of.at_drop("function gone");
        async move {
            let _gone = gone;
            ctx.step("a", async |_| Ok::<_, Failure>(())).await?;
            ctx.start(CHILD, &()).result().await
        }
    });
    let worker = worker.serve(CHILD, async |ctx: Ctx, ()| {
        ctx.sleep(Duration::from_secs(3_600)).await;
        Ok(())
    });
    let worker = worker.start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    until_asked(&process, Held::Children).await;
    run.cancel().await.unwrap();
    // The grace ends while the start is held back.
    log.until("function gone").await;
    process.store.let_go(Held::Children);
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    let of_child = Filter { workflow: Some(CHILD.name().to_owned()), ..Filter::default() };
    let children = process.onward.list(Query { filter: of_child, ..Query::default() });
    let child = children.await.unwrap().runs.remove(0).id;
    let ended = process.onward.run(child).ended().await.unwrap();
    assert_eq!(ended.state, RunState::Cancelled, "nobody is left behind");
    worker.shutdown().await.unwrap();
}

/// Does step a and waits, as the code did that a later build replaces.
async fn left_after_a(data: &Arc<dyn Store>, log: &Log) -> RunId {
    let first = Process::on(data);
    let of = log.clone();
    let worker = first.onward.worker().build("v1").serve(WORK, move |ctx: Ctx, ()| {
        let log = of.clone();
        async move {
            log.step(&ctx, "a", 1).await?;
            log.add("waits");
            ctx.step("b", async |_| std::future::pending::<Result<(), Failure>>().await).await
        }
    });
    let worker = worker.start().await.unwrap();
    let id = first.onward.start(WORK, &()).await.unwrap().id();
    log.until("waits").await;
    first.kill(worker).await;
    id
}

const ENDLESS: Workflow<(), ()> = Workflow::named("endless");

/// A cancel that comes while the function is replayed: what it has not asked for again is undone too.
#[tokio::test]
async fn a_cancel_in_the_middle_of_a_replay_undoes_all_that_was_done() {
    let (data, log, gate) = (data(), Log::default(), Arc::new(Semaphore::new(1)));
    let serve = |process: &Process| {
        let (log, gate) = (log.clone(), Arc::clone(&gate));
        let worker = process.onward.worker().build("v1").cancel_grace(Duration::from_secs(20));
        let of = log.clone();
        let worker = worker.serve(ENDLESS, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                ctx.step("endless", async |step| {
                    log.add("endless");
                    step.cancelled().await;
                    log.add("endless gone");
                    Ok::<_, Failure>(())
                })
                .await
            }
        });
        worker.serve(WORK, move |ctx: Ctx, ()| {
            let (log, gate) = (log.clone(), Arc::clone(&gate));
            async move {
                log.step(&ctx, "a", 1).await?;
                // Not from its Ctx, so that the replay stands still here.
                gate.acquire().await.unwrap().forget();
                log.step(&ctx, "b", 2).await?;
                log.add("waits");
                ctx.step("c", async |_| std::future::pending::<Result<(), Failure>>().await).await
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first).start().await.unwrap();
    let id = first.onward.start(WORK, &()).await.unwrap().id();
    log.until("waits").await;
    first.kill(worker).await;
    let second = Process::on(&data);
    let run: RunHandle<()> = second.onward.run(id).of_type();
    let worker = serve(&second).start().await.unwrap();
    until_state(&run, RunState::Running).await;
    run.cancel().await.unwrap();
    // The mark has reached the worker when a run that is marked after it has ended.
    let later = second.onward.start(ENDLESS, &()).await.unwrap();
    log.until("endless").await;
    later.cancel().await.unwrap();
    log.until("endless gone").await;
    gate.add_permits(1);
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    assert_eq!(log.lines().last_chunk(), Some(&["undo b 2".to_owned(), "undo a 1".to_owned()]));
    worker.shutdown().await.unwrap();
}

/// Code that never did step a.
fn serve_other(process: &Process, build: &str) -> WorkerBuilder {
    process.onward.worker().build(build).serve(WORK, async |ctx: Ctx, ()| {
        ctx.step("other", async |_| Ok::<_, Failure>(())).await?;
        Err(Failure::fatal("no").code("no"))
    })
}

/// What a run that ends with something left undone says of it.
async fn left_of(run: &RunHandle<()>) -> (Value, Value) {
    let failure = run.ended().await.unwrap().failure.expect("it is not wholly undone");
    assert!(failure.is(Code::UndoFailed.as_str()), "{failure}");
    let details: Value = failure.details.as_ref().unwrap().read().unwrap();
    (details["left_undone"].clone(), details["outcome"].clone())
}

#[tokio::test]
async fn a_cancelled_run_whose_replay_goes_another_way_tells_what_is_left() {
    let (data, log) = (data(), Log::default());
    let id = left_after_a(&data, &log).await;
    let second = Process::on(&data);
    let run: RunHandle<()> = second.onward.run(id).of_type();
    run.cancel().await.unwrap();
    let worker = serve_other(&second, "v1").start().await.unwrap();
    let (left, outcome) = left_of(&run).await;
    assert_eq!((&left[0]["step"], &left[1]), (&Value::from("a"), &Value::Null));
    assert_eq!(left[0]["code"], Code::HistoryMismatch.as_str());
    assert_eq!(outcome, "cancelled");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_that_new_code_has_no_more_is_left_when_its_run_fails() {
    let (data, log) = (data(), Log::default());
    let id = left_after_a(&data, &log).await;
    let second = Process::on(&data);
    let run: RunHandle<()> = second.onward.run(id).of_type();
    let worker = serve_other(&second, "v2").start().await.unwrap();
    let (left, outcome) = left_of(&run).await;
    assert_eq!(left[0]["step"], "a");
    assert_eq!(left[0]["code"], Code::UndoMissing.as_str());
    assert_eq!(outcome, "failed");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_run_whose_input_does_not_fit_tells_what_is_left() {
    const OTHER: Workflow<u32, ()> = Workflow::named("work");
    let (data, log) = (data(), Log::default());
    let id = left_after_a(&data, &log).await;
    let second = Process::on(&data);
    let run: RunHandle<()> = second.onward.run(id).of_type();
    run.cancel().await.unwrap();
    let worker = second.onward.worker().build("v2").serve(OTHER, async |_: Ctx, _| Ok(()));
    let worker = worker.start().await.unwrap();
    let (left, _) = left_of(&run).await;
    assert_eq!(left[0]["step"], "a");
    assert_eq!(left[0]["code"], Code::TypeMismatch.as_str());
    worker.shutdown().await.unwrap();
}
