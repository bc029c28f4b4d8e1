//! How runs execute: replay, misuse, panics, cancels, deadlines and ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::conformance::Death;
use onward::{
    Code, Ctx, Entry, Failure, OnConflict, Onward, Retry, RunHandle, RunState, Waits, Why, Workflow,
};
use tokio::sync::Notify;

use crate::listener::Listener;
use crate::process::{Process, data};
use crate::stores::on_each_store;

const WORK: Workflow<(), String> = Workflow::named("work");

type Counter = Arc<AtomicU32>;

fn count(counter: &Counter) -> u32 {
    counter.fetch_add(1, Ordering::SeqCst) + 1
}

/// Waits until the run is in this state; the deadline is only there so that a fault does not
/// hang the suite.
async fn in_state(run: &RunHandle<String>, state: RunState) -> onward::Run {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let found = run.status().await.unwrap();
        if found.state == state {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "still {}", found.state);
        tokio::time::sleep(Duration::from_millis(2)).await;
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
async fn a_branch_that_lost_before_the_crash_does_not_begin_again() {
    let data = data();
    let slow = Counter::default();
    let hold = Arc::new(Notify::new());
    let serve = |process: &Process, held: bool| {
        let (slow, hold) = (Arc::clone(&slow), Arc::clone(&hold));
        process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let (slow, hold) = (Arc::clone(&slow), Arc::clone(&hold));
            async move {
                tokio::select! {
                    fast = ctx.step("fast", async |_| Ok::<_, Failure>("fast".to_owned())) => fast?,
                    slow = ctx.step("slow", async |_| {
                        count(&slow);
                        std::future::pending::<Result<String, Failure>>().await
                    }) => slow?,
                };
                ctx.step("last", async |_| {
                    if held {
                        hold.notified().await;
                    }
                    Ok::<_, Failure>("done".to_owned())
                })
                .await
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first, true).start().await.unwrap();
    let run = first.onward.start(WORK, &()).key("k").await.unwrap();
    let recorded = async || !run.history().await.unwrap().is_empty();
    while !recorded().await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve(&second, false).start().await.unwrap();
    let run = second.onward.by_key(WORK, "k").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "done");
    assert_eq!(slow.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn values_of_the_run_are_the_same_on_replay() {
    let data = data();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let gate = Arc::new(AtomicU32::new(0));
    let serve = |process: &Process| {
        let (seen, gate) = (Arc::clone(&seen), Arc::clone(&gate));
        process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let (seen, gate) = (Arc::clone(&seen), Arc::clone(&gate));
            async move {
                let before = (ctx.now(), ctx.random(), ctx.uuid());
                ctx.step("one", async |_| Ok::<_, Failure>(())).await?;
                let after = (ctx.now(), ctx.random(), ctx.uuid());
                assert_ne!((before.1, before.2), (after.1, after.2));
                seen.lock().unwrap().push((ctx.run_id(), before, after));
                ctx.step("gate", async |_| {
                    if gate.load(Ordering::SeqCst) == 0 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>("through".to_owned())
                })
                .await
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first).start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    let id = run.id();
    until(|| seen.lock().unwrap().len() == 1).await;
    while run.history().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.kill(worker).await;
    gate.store(1, Ordering::SeqCst);
    let second = Process::on(&data);
    let worker = serve(&second).start().await.unwrap();
    second.onward.run(id).result().await.unwrap();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0], seen[1]);
    worker.shutdown().await.unwrap();
}

/// Serves `function` on a fresh store and waits for the end of one run.
async fn ended<F, Fut>(function: F) -> (Onward, onward::Run)
where
    F: Fn(Ctx, ()) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let onward = Onward::open("memory:").await.unwrap();
    let _worker = onward.worker().serve(WORK, function).start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap().ended().await.unwrap();
    (onward, run)
}

#[tokio::test]
async fn a_step_in_a_spawned_task_is_refused() {
    let (onward, run) = ended(async |ctx: Ctx, ()| {
        let inner = ctx.clone();
        let step = tokio::spawn(async move {
            inner.step("spawned", async |_| Ok::<_, Failure>("never".to_owned())).await
        });
        step.await?
    })
    .await;
    assert_eq!(run.failure.unwrap().code, Code::StepOutsideRun.as_str());
    assert!(onward.run(run.id).history().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_step_that_moves_into_a_spawned_task_is_refused() {
    let (_, run) = ended(async |ctx: Ctx, ()| {
        let step = ctx.step("moved", async |_| Ok::<_, Failure>("never".to_owned()));
        tokio::spawn(step).await?
    })
    .await;
    assert_eq!(run.failure.unwrap().code, Code::StepOutsideRun.as_str());
}

#[tokio::test]
async fn a_step_in_a_step_is_refused() {
    let (onward, run) = ended(async |ctx: Ctx, ()| {
        ctx.step("outer", async |_| {
            ctx.step("inner", async |_| Ok::<_, Failure>("never".to_owned())).await
        })
        .await
    })
    .await;
    assert_eq!(run.failure.unwrap().code, Code::StepNested.as_str());
    let steps: Vec<_> =
        onward.run(run.id).history().await.unwrap().into_iter().map(|r| r.step).collect();
    assert_eq!(steps, ["outer"]);
}

#[tokio::test]
async fn a_ctx_kept_after_the_end_is_refused() {
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let (_, run) = ended(move |ctx: Ctx, ()| {
        keep.lock().unwrap().replace(ctx);
        async { Ok("done".to_owned()) }
    })
    .await;
    assert_eq!(run.state, RunState::Completed);
    let ctx: Ctx = kept.lock().unwrap().take().unwrap();
    let late = || ctx.step("late", async |_| Ok::<_, Failure>(()));
    // The driver's task may still be on its way out when the result is there.
    let mut refused = late().await.unwrap_err();
    while refused.is(Code::StepOutsideRun.as_str()) {
        tokio::task::yield_now().await;
        refused = late().await.unwrap_err();
    }
    assert_eq!(refused.code, Code::RunEnded.as_str());
}

#[tokio::test]
async fn a_panic_is_a_failure() {
    let (_, run) = ended(async |_: Ctx, ()| panic!("in the function")).await;
    let failure = run.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("panic", "in the function"));
    let (_, run) = ended(async |ctx: Ctx, ()| {
        ctx.step("panics", async |step| {
            assert!(step.try_number() > 1, "in the body");
            Ok::<_, Failure>("second try".to_owned())
        })
        .await
    })
    .await;
    assert_eq!(run.output.unwrap().as_str(), "\"second try\"");
}

#[tokio::test]
async fn a_dropped_step_drops_its_body() {
    struct Dropped(Counter);
    impl Drop for Dropped {
        fn drop(&mut self) {
            count(&self.0);
        }
    }
    let dropped = Counter::default();
    let seen = Arc::clone(&dropped);
    let (_, run) = ended(move |ctx: Ctx, ()| {
        let seen = Arc::clone(&seen);
        async move {
            let body = async |_: onward::Step| {
                let _guard = Dropped(Arc::clone(&seen));
                std::future::pending::<Result<(), Failure>>().await
            };
            tokio::select! {
                _ = ctx.step("endless", body) => {}
                () = ctx.sleep(Duration::from_millis(5)) => {}
            }
            Ok(format!("{} dropped", seen.load(Ordering::SeqCst)))
        }
    })
    .await;
    assert_eq!(run.output.unwrap().as_str(), "\"1 dropped\"");
}

#[tokio::test]
async fn steps_of_one_name_are_numbered_and_explicit_ids_do_not_shift_them() {
    let (onward, run) = ended(async |ctx: Ctx, ()| {
        let save = |id: &str| {
            let id = id.to_owned();
            ctx.step("save", move |step| {
                let id = format!("{id} {}", step.id().split_once('/').map_or("", |(_, id)| id));
                async move { Ok::<_, Failure>(id) }
            })
        };
        save("first").await?;
        save("explicit").id("a/b #1").await?;
        save("second").await?;
        let taken = save("again").id("a/b #1").await.unwrap_err();
        Ok(taken.code.clone())
    })
    .await;
    assert_eq!(run.output.unwrap().as_str(), "\"step_id_taken\"");
    let history = onward.run(run.id).history().await.unwrap();
    let steps: Vec<_> = history.iter().map(|record| record.step.as_str()).collect();
    assert_eq!(steps, ["save", "save#=a/b %231", "save#2"]);
    let values: Vec<_> = history
        .iter()
        .map(|record| match &record.entry {
            Entry::Done(json) => json.read::<String>().unwrap(),
            _ => String::new(),
        })
        .collect();
    assert_eq!(values, ["first save", "explicit save#=a/b %231", "second save#2"]);
}

#[tokio::test]
async fn a_result_that_does_not_read_back_is_not_recorded_as_a_success() {
    let (onward, run) = ended(async |ctx: Ctx, ()| {
        let number = ctx.step("nan", async |_| Ok::<_, Failure>(f64::NAN)).await?;
        Ok(number.to_string())
    })
    .await;
    assert_eq!(run.failure.unwrap().code, Code::NotSerializable.as_str());
    let history = onward.run(run.id).history().await.unwrap();
    assert!(matches!(history[..], [ref only] if matches!(only.entry, Entry::Failed(_))));
}

#[tokio::test]
async fn too_large_a_result_fails_with_its_code() {
    let (_, run) = ended(async |ctx: Ctx, ()| {
        ctx.step("large", async |_| Ok::<_, Failure>("x".repeat(onward::limits::PAYLOAD_BYTES_MAX)))
            .await
    })
    .await;
    assert_eq!(run.failure.unwrap().code, Code::PayloadTooLarge.as_str());
    let (_, run) =
        ended(async |_: Ctx, ()| Ok("x".repeat(onward::limits::PAYLOAD_BYTES_MAX))).await;
    assert_eq!(run.failure.unwrap().code, Code::PayloadTooLarge.as_str());
}

#[tokio::test]
async fn an_interrupted_at_most_once_step_fails_and_is_not_executed_again() {
    let data = data();
    let executed = Counter::default();
    let serve = |process: &Process| {
        let executed = Arc::clone(&executed);
        process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let executed = Arc::clone(&executed);
            async move {
                let sent = ctx.step("send", async |_| {
                    count(&executed);
                    std::future::pending::<Result<(), Failure>>().await
                });
                let failure = sent.at_most_once().await.unwrap_err();
                Ok(failure.code.clone())
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first).start().await.unwrap();
    let id = first.onward.start(WORK, &()).await.unwrap().id();
    until(|| executed.load(Ordering::SeqCst) == 1).await;
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve(&second).start().await.unwrap();
    let output = second.onward.run(id).of_type::<String>().result().await.unwrap();
    assert_eq!(output, "interrupted");
    assert_eq!(executed.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

/// Serves a function that takes steps by `names`, under a build.
fn serve_steps(
    process: &Process,
    build: &str,
    names: &'static [&'static str],
    stop_at: &'static str,
) -> onward::WorkerBuilder {
    let worker = process.onward.worker().build(build);
    worker.serve(WORK, move |ctx: Ctx, ()| async move {
        for name in names {
            ctx.step(*name, async |_| {
                if *name == stop_at {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>(())
            })
            .await?;
        }
        Ok(names.join(","))
    })
}

async fn recorded(run: &RunHandle<String>, records: usize) {
    while run.history().await.unwrap().len() < records {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn another_way_under_the_same_build_waits_and_another_build_mends_it() {
    let data = data();
    let first = Process::on(&data);
    let worker = serve_steps(&first, "v1", &["a", "b", "c"], "c").start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    recorded(&run, 2).await;
    let id = run.id();
    first.kill(worker).await;

    let second = Process::on(&data);
    let worker = serve_steps(&second, "v1", &["a", "x"], "").start().await.unwrap();
    let run = second.onward.run(id).of_type();
    let stuck = in_state(&run, RunState::Waiting).await;
    let Some(Waits::Stuck { code, detail }) = stuck.waits_for else { panic!("not stuck") };
    assert_eq!(code, Code::HistoryMismatch.as_str());
    assert!(detail.contains("\"b\"") && detail.contains("\"x\""), "{detail}");
    assert!(matches!(run.why().await.unwrap(), Why::Stuck { .. }));
    assert_eq!(run.history().await.unwrap().len(), 2, "it stops before the body");
    worker.shutdown().await.unwrap();

    let third = Process::on(&data);
    let worker = serve_steps(&third, "v2", &["a", "x"], "").start().await.unwrap();
    assert_eq!(third.onward.run(id).of_type::<String>().result().await.unwrap(), "a,x");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn changed_code_under_another_build_goes_on() {
    let data = data();
    let first = Process::on(&data);
    let worker = serve_steps(&first, "v1", &["a", "b", "c"], "c").start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    recorded(&run, 2).await;
    let id = run.id();
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve_steps(&second, "v2", &["a", "x", "c"], "").start().await.unwrap();
    let run = second.onward.run(id).of_type::<String>();
    assert_eq!(run.result().await.unwrap(), "a,x,c");
    let noted = run.status().await.unwrap().code_change.unwrap();
    assert_eq!((noted.build.as_str(), noted.unasked), ("v2", vec!["b".to_owned()]));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn changed_code_that_only_asks_for_less_is_noted_too() {
    let data = data();
    let first = Process::on(&data);
    let worker = serve_steps(&first, "v1", &["a", "b", "c"], "c").start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    recorded(&run, 2).await;
    let id = run.id();
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve_steps(&second, "v2", &["b"], "").start().await.unwrap();
    let run = second.onward.run(id).of_type::<String>();
    assert_eq!(run.result().await.unwrap(), "b");
    assert_eq!(run.status().await.unwrap().code_change.unwrap().unasked, ["a"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_goes_the_same_way_again_has_no_code_change() {
    let data = data();
    let first = Process::on(&data);
    let worker = serve_steps(&first, "v1", &["a", "b"], "b").start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    recorded(&run, 1).await;
    let id = run.id();
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve_steps(&second, "v2", &["a", "b"], "").start().await.unwrap();
    let run = second.onward.run(id).of_type::<String>();
    assert_eq!(run.result().await.unwrap(), "a,b");
    assert_eq!(run.status().await.unwrap().code_change, None);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stuck_run_fails_at_its_deadline() {
    let data = data();
    let first = Process::on(&data);
    let worker = serve_steps(&first, "v1", &["a", "b"], "b").start().await.unwrap();
    let timeout = Duration::from_secs(2);
    let run = first.onward.start(WORK, &()).timeout(timeout).await.unwrap();
    recorded(&run, 1).await;
    let id = run.id();
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve_steps(&second, "v1", &["x"], "").start().await.unwrap();
    let run = second.onward.run(id).of_type::<String>();
    in_state(&run, RunState::Waiting).await;
    in_state(&run, RunState::Failed).await;
    let failure = run.status().await.unwrap().failure.unwrap();
    assert!(failure.is(Code::DeadlineExceeded.as_str()), "{failure:?}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_foreign_await_that_leads_elsewhere_is_named() {
    let data = data();
    let life = Counter::default();
    let serve = |process: &Process| {
        let life = Arc::clone(&life);
        process.onward.worker().build("v1").serve(WORK, move |ctx: Ctx, ()| {
            let life = count(&life);
            async move {
                let slow =
                    ctx.step("slow", async |_| std::future::pending::<Result<(), Failure>>().await);
                // In its second life the timeout is so long that the step would begin again.
                let limit = if life == 1 { 5 } else { 60_000 };
                let _ = tokio::time::timeout(Duration::from_millis(limit), slow).await;
                ctx.step("after", async |_| Ok::<_, Failure>(())).await?;
                ctx.step("hold", async |_| std::future::pending::<Result<String, Failure>>().await)
                    .await
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first).start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    recorded(&run, 1).await;
    let id = run.id();
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve(&second).start().await.unwrap();
    let run = second.onward.run(id).of_type();
    let stuck = in_state(&run, RunState::Waiting).await;
    let Some(Waits::Stuck { code, .. }) = stuck.waits_for else { panic!("not stuck") };
    assert_eq!(code, Code::ForeignAwait.as_str());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_recorded_result_of_another_type_waits() {
    let data = data();
    let first = Process::on(&data);
    let worker = first.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        ctx.step("a", async |_| Ok::<_, Failure>("4111-secret".to_owned())).await?;
        ctx.step("hold", async |_| std::future::pending::<Result<String, Failure>>().await).await
    });
    let worker = worker.start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    recorded(&run, 1).await;
    let id = run.id();
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = second.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let number = ctx.step("a", async |_| Ok::<_, Failure>(1_u32)).await?;
        Ok(number.to_string())
    });
    let worker = worker.start().await.unwrap();
    let run = second.onward.run(id).of_type();
    let stuck = in_state(&run, RunState::Waiting).await;
    let Some(Waits::Stuck { code, detail, .. }) = stuck.waits_for else { panic!("not stuck") };
    assert_eq!(code, Code::TypeMismatch.as_str());
    let told =
        "the recorded result of step \"a\", read as u32: it does not fit at line 1 column 13";
    assert_eq!(detail, told, "and not what it is");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_input_of_another_type_waits() {
    let onward = Onward::open("memory:").await.unwrap();
    let other: Workflow<u32, String> = Workflow::named("work");
    let run = onward.start(other, &5).await.unwrap();
    let worker = onward.worker().serve(WORK, async |_: Ctx, ()| Ok(String::new()));
    let worker = worker.start().await.unwrap();
    let stuck = in_state(&run, RunState::Waiting).await;
    let Some(Waits::Stuck { code, .. }) = stuck.waits_for else { panic!("not stuck") };
    assert_eq!(code, Code::TypeMismatch.as_str());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_body_that_ignores_a_cancel_is_dropped_after_the_grace_time() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().cancel_grace(Duration::from_millis(20));
    let worker = worker.serve(WORK, async |ctx: Ctx, ()| {
        ctx.step("deaf", async |_| std::future::pending::<Result<String, Failure>>().await).await
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    run.cancel().await.unwrap();
    assert_eq!(run.result().await.unwrap_err().code(), Code::RunCancelled);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_that_finishes_while_cancelled_keeps_its_record() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        ctx.step("tidy", async |step| {
            step.cancelled().await;
            Ok::<_, Failure>("tidied".to_owned())
        })
        .await?;
        ctx.step("never", async |_| Ok::<_, Failure>("never".to_owned())).await
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    run.cancel().await.unwrap();
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    let history = run.history().await.unwrap();
    assert!(matches!(&history[..], [tidy] if tidy.step == "tidy"));
    worker.shutdown().await.unwrap();
}

/// Fails where a cancel is told only to bodies that wait for one.
#[tokio::test]
async fn a_body_that_asks_late_hears_of_a_cancel() {
    let onward = Onward::open("memory:").await.unwrap();
    let asks = Arc::new(tokio::sync::Notify::new());
    let asked = Arc::clone(&asks);
    let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let asked = Arc::clone(&asked);
        async move {
            ctx.step("late", async |step| {
                asked.notified().await;
                step.cancelled().await;
                Ok::<_, Failure>("heard".to_owned())
            })
            .await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    run.cancel().await.unwrap();
    // Long enough for the cancel to be with the run's driver, which looks every half second.
    tokio::time::sleep(Duration::from_millis(700)).await;
    asks.notify_one();
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    assert_eq!(run.history().await.unwrap().len(), 1, "the body ended by itself");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_is_out_of_time_fails() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().cancel_grace(Duration::from_millis(5)).linger(Duration::ZERO);
    let worker = worker.serve(WORK, async |ctx: Ctx, ()| {
        ctx.sleep(Duration::from_millis(10)).await;
        ctx.step("endless", async |_| std::future::pending::<Result<String, Failure>>().await).await
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).timeout(Duration::from_millis(50)).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, Code::DeadlineExceeded.as_str());
    let late = onward.start(WORK, &()).timeout(Duration::ZERO).await.unwrap();
    let error = late.result().await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, Code::DeadlineExceeded.as_str());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn shutdown_lets_bodies_finish_and_gives_the_run_back() {
    let data = data();
    let hold = Arc::new(Notify::new());
    let begun = Counter::default();
    let serve = |process: &Process| {
        let (hold, begun) = (Arc::clone(&hold), Arc::clone(&begun));
        process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let (hold, begun) = (Arc::clone(&hold), Arc::clone(&begun));
            async move {
                ctx.step("held", async |_| {
                    count(&begun);
                    hold.notified().await;
                    Ok::<_, Failure>(())
                })
                .await?;
                ctx.step("last", async |_| Ok::<_, Failure>("done".to_owned())).await
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first).start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    let stopping = tokio::spawn(worker.shutdown());
    hold.notify_one();
    stopping.await.unwrap().unwrap();
    assert_eq!(run.status().await.unwrap().state, RunState::Queued);
    assert_eq!(run.history().await.unwrap().len(), 1);
    let second = Process::on(&data);
    let worker = serve(&second).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "done");
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn shutdown_drops_what_outlasts_the_grace_time() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().shutdown_grace(Duration::from_millis(20));
    let worker = worker.serve(WORK, async |ctx: Ctx, ()| {
        ctx.step("endless", async |_| std::future::pending::<Result<String, Failure>>().await).await
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    in_state(&run, RunState::Running).await;
    worker.shutdown().await.unwrap();
    let found = run.status().await.unwrap();
    assert_eq!((found.state, found.crashes), (RunState::Queued, 0));
}

#[tokio::test]
async fn a_run_goes_on_as_another_under_the_same_key() {
    const COUNT: Workflow<u32, u32> = Workflow::named("count");
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(COUNT, async |ctx: Ctx, number: u32| {
        let next = ctx.step("next", async |_| Ok::<_, Failure>(number + 1)).await?;
        if next < 5 { ctx.continue_as(COUNT, &next) } else { Ok(next) }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(COUNT, &0).key("counter").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 5);
    let last = onward.by_key(COUNT, "counter").await.unwrap();
    assert_ne!(last.id(), run.id());
    assert_eq!(last.history().await.unwrap().len(), 1);
    let again = onward.start(COUNT, &0).key("counter").await.unwrap();
    assert_eq!(again.id(), last.id());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn fifty_callers_with_one_key_get_one_run() {
    let onward = Onward::open("memory:").await.unwrap();
    let executed = Counter::default();
    let seen = Arc::clone(&executed);
    let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let seen = Arc::clone(&seen);
        async move { ctx.step("once", async |_| Ok::<_, Failure>(count(&seen).to_string())).await }
    });
    let worker = worker.start().await.unwrap();
    let callers = (0..50).map(|_| {
        let onward = onward.clone();
        tokio::spawn(async move {
            let run = onward.start(WORK, &()).key("one").await.unwrap();
            (run.id(), run.result().await.unwrap())
        })
    });
    let mut answers = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        answers.push(caller.await.unwrap());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert_eq!(executed.load(Ordering::SeqCst), 1);
    let run = onward.by_key(WORK, "one").await.unwrap();
    assert_eq!(run.duplicates().await.unwrap().count, 49);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn another_input_with_the_same_key_names_both() {
    const NUMBER: Workflow<u32, u32> = Workflow::named("number");
    let onward = Onward::open("memory:").await.unwrap();
    let run = onward.start(NUMBER, &1).key("k").await.unwrap();
    let error = onward.start(NUMBER, &2).key("k").await.unwrap_err();
    assert_eq!((error.code(), error.run()), (Code::KeyConflict, Some(run.id())));
    assert!(error.to_string().contains("\"k\""), "{error}");
    let error = onward.start(NUMBER, &1).key("k").on_conflict(OnConflict::Reject).await;
    assert_eq!(error.unwrap_err().code(), Code::KeyTaken);
    let same = onward.start(NUMBER, &2).key("k").fingerprint(&1).await.unwrap();
    assert_eq!(same.id(), run.id());
}

#[tokio::test]
async fn a_run_that_nobody_serves_waits_and_says_why() {
    let onward = Onward::open("memory:").await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    assert!(matches!(run.why().await.unwrap(), Why::NoWorker { .. }));
    let worker = onward.worker().serve(WORK, async |_: Ctx, ()| Ok("served".to_owned()));
    let worker = worker.start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "served");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn lost_answers_change_nothing() {
    for losses in 1..6 {
        let data = data();
        let process = Process::on(&data);
        let worker = serve_steps(&process, "v1", &["a", "b", "c"], "").start().await.unwrap();
        process.store.lose_next(losses);
        let run = loop {
            match process.onward.start(WORK, &()).key("k").await {
                Ok(run) => break run,
                Err(error) => assert_eq!(error.code(), Code::StoreUnavailable),
            }
        };
        assert_eq!(run.result().await.unwrap(), "a,b,c");
        assert_eq!(run.history().await.unwrap().len(), 3);
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn names_and_inputs_are_checked_before_anything_is_written() {
    let onward = Onward::open("memory:").await.unwrap();
    let code = async |start: onward::Start<String>| start.await.unwrap_err().code();
    assert_eq!(code(onward.start(WORK, &()).key("a\0b")).await, Code::NulCharacter);
    assert_eq!(code(onward.start(WORK, &()).key("")).await, Code::InvalidName);
    assert_eq!(code(onward.start(WORK, &()).key("k".repeat(513))).await, Code::InvalidName);
    assert_eq!(code(onward.start(WORK, &()).queue("")).await, Code::InvalidName);
    assert_eq!(code(onward.start(WORK, &()).tag("", "x")).await, Code::InvalidName);
    let unnamed: Workflow<(), String> = Workflow::of_name("");
    assert_eq!(code(onward.start(unnamed, &())).await, Code::InvalidName);
    let large: Workflow<String, String> = Workflow::named("large");
    let text = "x".repeat(onward::limits::PAYLOAD_BYTES_MAX);
    assert_eq!(code(onward.start(large, &text)).await, Code::PayloadTooLarge);
    let maps: Workflow<std::collections::HashMap<Vec<u8>, u8>, String> = Workflow::named("maps");
    let map = std::collections::HashMap::from([(vec![1], 1)]);
    assert_eq!(code(onward.start(maps, &map)).await, Code::NotSerializable);
    assert!(onward.list(onward::Query::default()).await.unwrap().runs.is_empty());
}

/// A try that never begins can only be seen over a time: four times the pause before it.
#[tokio::test]
async fn a_further_try_does_not_begin_under_a_lease_that_ran_out() {
    let data = data();
    let process = Process::on(&data);
    let tries = Counter::default();
    let seen = Arc::clone(&tries);
    let pause = Duration::from_millis(500);
    let worker = process.onward.worker().lease(Duration::from_millis(200));
    let worker = worker.linger(Duration::from_secs(60)).serve(WORK, move |ctx: Ctx, ()| {
        let seen = Arc::clone(&seen);
        async move {
            ctx.step("flaky", async |_| match count(&seen) {
                1 => Err("once"),
                _ => Ok("twice".to_owned()),
            })
            .retry(Retry::fixed(pause))
            .await
        }
    });
    let _worker = worker.start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    recorded(&run, 1).await;
    // From here on nothing is renewed.
    process.store.die_after(0, Death::Before);
    tokio::time::sleep(pause * 4).await;
    assert_eq!(tries.load(Ordering::SeqCst), 1);
}

/// Nothing is renewed for longer than the lease while a try is due; then a renewal comes late. The run has
/// no other alarm, and nothing but the driver itself looks at the lease again: the watchdog would, and it
/// says so.
#[tokio::test]
async fn what_a_late_renewal_held_up_begins_after_it() {
    let listener = Listener::new();
    on_each_store(async |onward| {
        let process = Process::on(onward.store());
        let tries = Counter::default();
        let seen = Arc::clone(&tries);
        let pause = Duration::from_millis(600);
        let worker = process.onward.worker().lease(Duration::from_millis(300));
        let worker = worker.linger(Duration::from_secs(60)).serve(WORK, move |ctx: Ctx, ()| {
            let seen = Arc::clone(&seen);
            async move {
                let flaky = ctx.step("flaky", async |_| match count(&seen) {
                    1 => Err("once"),
                    _ => Ok("twice".to_owned()),
                });
                flaky.retry(Retry::fixed(pause)).await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = process.onward.start(WORK, &()).await.unwrap();
        recorded(&run, 1).await;
        process.store.go_away_after(0);
        // The try is due by then, and no renewal holds.
        tokio::time::sleep(pause * 2).await;
        assert_eq!(tries.load(Ordering::SeqCst), 1, "the lease may be another's");
        process.store.come_back();
        let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        assert_eq!(result.expect("it begins after the renewal").unwrap(), "twice");
        let log = listener.log_of(run.id());
        assert!(!log.contains("a wake was missed"), "{log}");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_that_blocks_its_thread_does_not_keep_a_lost_worker_from_joining_again() {
    let data = data();
    let process = Process::on(&data);
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let begun = Counter::default();
    let seen = Arc::clone(&begun);
    let worker = process.onward.worker().lease(Duration::from_millis(200));
    let worker = worker.serve(WORK, move |ctx: Ctx, ()| {
        let (seen, blocked) = (Arc::clone(&seen), Arc::clone(&blocked));
        async move {
            ctx.step("block", async |_| {
                if count(&seen) == 1 {
                    let _ = blocked.lock().unwrap().recv();
                }
                Ok::<_, Failure>("done".to_owned())
            })
            .await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    data.leave(worker.id()).await.unwrap();
    let served = tokio::time::timeout(Duration::from_secs(10), run.result()).await;
    drop(unblock);
    assert_eq!(served.unwrap().unwrap(), "done", "it is taken up under the new id");
    worker.shutdown().await.unwrap();
}
