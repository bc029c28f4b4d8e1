//! Forks of runs that had something of every other feature.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Entry, Failure, RunState, Uuid, Workflow};

use super::{Log, soon};
use crate::bank::Bank;
use crate::process::{Process, data};
use crate::stores::{on_each_store, until_state};

const WORK: Workflow<(), u32> = Workflow::named("work");

/// What the run is to do on a cancel is asked for anew, and is the fork's own; what it took along is not
/// undone.
#[tokio::test]
async fn a_cancelled_fork_does_what_it_has_to_on_a_cancel() {
    on_each_store(async |onward| {
        let log = Log::default();
        let serve = || {
            let of = log.clone();
            onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
                let log = of.clone();
                async move {
                    let told = log.clone();
                    ctx.on_cancel(move |_| {
                        told.add("told");
                        ready(Ok::<_, Failure>(()))
                    });
                    log.step(&ctx, "reserve").await?;
                    log.step(&ctx, "ask").await?;
                    let word = ctx.signal("go").await?;
                    log.step(&ctx, "ship").await?;
                    Ok(word)
                }
            })
        };
        let worker = serve().start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        run.signal("go", &7).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);

        let fork = run.fork("ask").await.unwrap();
        until_state(&fork, RunState::Waiting).await;
        fork.cancel().await.unwrap();
        assert_eq!(soon(fork.ended()).await.unwrap().state, RunState::Cancelled);
        assert_eq!(log.lines()[3..], ["ask", "told", "undo ask"]);

        // It has done nothing itself when it is cancelled.
        worker.shutdown().await.unwrap();
        let fork = run.fork("ship").await.unwrap();
        fork.cancel().await.unwrap();
        let worker = serve().start().await.unwrap();
        assert_eq!(soon(fork.ended()).await.unwrap().state, RunState::Cancelled);
        assert_eq!(log.lines()[6..], ["told"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_fork_is_not_stopped_as_the_first_run_was() {
    on_each_store(async |onward| {
        let worker = onward.worker().linger(Duration::ZERO).cancel_grace(Duration::ZERO);
        let worker = worker.serve(WORK, async |ctx: Ctx, ()| {
            let one = ctx.step("one", async |_| Ok::<_, Failure>(1)).await?;
            let two = ctx.step("two", async |_| Ok::<_, Failure>(2)).await?;
            Ok(one + two + ctx.signal::<u32>("go").await?)
        });
        let worker = worker.start().await.unwrap();
        for how in ["is cancelled", "is late", "is paused"] {
            let mut run = onward.start(WORK, &());
            if how == "is late" {
                run = run.timeout(Duration::from_millis(700));
            }
            let run = run.await.unwrap();
            until_state(&run, RunState::Waiting).await;
            match how {
                "is cancelled" => run.cancel().await.unwrap(),
                "is paused" => run.pause().await.unwrap(),
                _ => {}
            }
            if how != "is paused" {
                let code = soon(run.result()).await.unwrap_err().code();
                assert!([Code::RunCancelled, Code::RunFailed].contains(&code), "{how}: {code}");
            }
            let fork = run.fork("two").await.unwrap();
            let found = fork.status().await.unwrap();
            assert_eq!((found.cancel_at, found.deadline_at, found.paused_at), (None, None, None));
            fork.signal("go", &4).await.unwrap();
            assert_eq!(soon(fork.result()).await.unwrap(), 7, "the first {how}");
            if how == "is paused" {
                assert!(run.status().await.unwrap().paused_at.is_some(), "it stays as it is");
            }
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The run that goes on after a fork has nothing of the first: what it does is its own, and is undone.
#[tokio::test]
async fn a_fork_goes_on_as_another_as_its_source_did() {
    const LAPS: Workflow<u32, u32> = Workflow::named("laps");
    on_each_store(async |onward| {
        let (log, is_lost) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let (of, lost) = (log.clone(), Arc::clone(&is_lost));
        let worker =
            onward.worker().linger(Duration::ZERO).serve(LAPS, move |ctx: Ctx, lap: u32| {
                let (log, lost) = (of.clone(), Arc::clone(&lost));
                async move {
                    log.step(&ctx, "reserve").await?;
                    log.step(&ctx, "charge").await?;
                    ctx.sleep(Duration::from_millis(5)).await;
                    if lap == 1 {
                        return ctx.continue_as(LAPS, &2);
                    }
                    match lost.load(Ordering::SeqCst) {
                        true => Err(Failure::fatal("lost").code("parcel_lost")),
                        false => Ok(lap),
                    }
                }
            });
        let worker = worker.start().await.unwrap();
        let run = onward.start(LAPS, &1).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 2);
        assert_eq!(log.lines(), ["reserve", "charge", "reserve", "charge"]);

        let fork = run.fork("charge").key("again").await.unwrap();
        assert_eq!(soon(fork.result()).await.unwrap(), 2);
        assert_eq!(log.lines()[4..], ["charge", "reserve", "charge"]);
        let last = onward.by_key(LAPS, "again").await.unwrap();
        assert_eq!(fork.own_status().await.unwrap().continued_as, Some(last.id()));
        assert_eq!(last.status().await.unwrap().forked_from, None);

        is_lost.store(true, Ordering::SeqCst);
        let fork = run.fork("charge").await.unwrap();
        let error = soon(fork.result()).await.unwrap_err();
        assert!(error.failure().unwrap().is("parcel_lost"), "{error}");
        assert_eq!(log.lines()[10..], ["undo charge", "undo reserve"]);
        let of_last = last.fork("charge").await.unwrap();
        assert_eq!(soon(of_last.result()).await.unwrap_err().code(), Code::RunFailed);
        assert_eq!(log.lines()[12..], ["charge", "undo charge"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_fork_is_given_what_is_kept_with_a_key() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                log.step(&ctx, "before").await?;
                let send = ctx.step("send", async |_| {
                    log.add("send");
                    Ok::<_, Failure>(7)
                });
                let sent = send.key("welcome").await?;
                log.step(&ctx, "after").await?;
                Ok(sent)
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);
        for step in ["before", "send", "after"] {
            assert_eq!(soon(run.fork(step).await.unwrap().result()).await.unwrap(), 7, "{step}");
        }
        assert_eq!(log.count("send"), 1);
        onward.release_key("welcome").await.unwrap();
        assert_eq!(soon(run.fork("send").await.unwrap().result()).await.unwrap(), 7);
        assert_eq!(log.count("send"), 2);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Nobody knows of the body that was executing in the first run whether it took effect.
#[tokio::test]
async fn a_fork_does_not_execute_what_may_have_been_executed_once() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let fax = ctx.step("fax", async |step| {
                    log.add("fax");
                    step.cancelled().await;
                    Err::<u32, _>(Failure::fatal("stopped"))
                });
                let beside = async {
                    log.until("fax").await;
                    ctx.step("beside", async |_| Ok::<_, Failure>(())).await
                };
                tokio::try_join!(fax.at_most_once(), beside).map(|(sent, ())| sent)
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        let recorded = async {
            while !run.history().await.unwrap().iter().any(|record| record.step == "beside") {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        soon(recorded).await;
        let fork = run.fork("beside").await.unwrap();
        let error = soon(fork.result()).await.unwrap_err();
        assert!(error.failure().unwrap().is(Code::Interrupted.as_str()), "{error}");
        assert_eq!(log.count("fax"), 1);
        assert!(matches!(fork.history().await.unwrap()[0].entry, Entry::Began));
        run.cancel().await.unwrap();
        soon(run.ended()).await.unwrap();
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_fork_does_the_transactions_after_its_step_and_no_others() {
    let bank = Bank::open();
    let process = bank.process();
    let worker = process.onward.worker().linger(Duration::ZERO);
    let worker = worker.serve(WORK, async |ctx: Ctx, ()| {
        for name in ["one", "two"] {
            let note = ctx.sqlite_transaction(name, move |db, _| {
                db.execute("insert into notes values (?1)", [name])?;
                Ok::<_, Failure>(())
            });
            note.await?;
            ctx.sleep(Duration::from_millis(5)).await;
        }
        ctx.signal::<u32>("go").await
    });
    let worker = worker.start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    run.signal("go", &7).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), 7);
    let fork = run.fork("two").await.unwrap();
    fork.signal("go", &8).await.unwrap();
    assert_eq!(soon(fork.result()).await.unwrap(), 8);
    assert_eq!(bank.notes(), ["one", "two", "two"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_fork_in_the_middle_of_a_fan_out_does_the_rest_of_it() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let square = |n: u32| {
                    let log = log.clone();
                    ctx.step("square", move |_| {
                        log.add(format!("square {n}"));
                        ready(Ok::<_, Failure>(n * n))
                    })
                };
                let squares = ctx.all(0..8, 3, square).await?;
                assert_eq!(squares, (0..8).map(|n| n * n).collect::<Vec<_>>());
                Ok(squares.iter().sum())
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 140);
        let history = run.history().await.unwrap();
        let before = log.lines().len();
        let fork = run.fork(history[5].step.as_str()).await.unwrap();
        assert_eq!(soon(fork.result()).await.unwrap(), 140);
        assert_eq!(log.lines().len() - before, 3, "{:?}", log.lines());
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The parent has the end that its child told it, and hears nothing of what was forked from that.
#[tokio::test]
async fn a_fork_of_a_child_is_no_child() {
    const CHILD: Workflow<u32, u32> = Workflow::named("child");
    on_each_store(async |onward| {
        let child = async |ctx: Ctx, n: u32| {
            ctx.step("load", async |_| Ok::<_, Failure>(())).await?;
            ctx.step("double", async |_| Ok::<_, Failure>(n * 2)).await
        };
        let worker = onward.worker().linger(Duration::ZERO).serve(CHILD, child);
        let worker = worker.serve(WORK, async |ctx: Ctx, ()| {
            let child = ctx.start(CHILD, &3).await?;
            let id = child.id();
            ctx.step("tell", async |_| Ok::<_, Failure>(id.to_string())).await?;
            let doubled = child.result().await?;
            Ok(doubled + ctx.signal::<u32>("go").await?)
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        let history = run.history().await.unwrap();
        let told = history.iter().find_map(|record| match &record.entry {
            Entry::Done(json) if record.step == "tell" => json.read::<String>().ok(),
            _ => None,
        });
        let child = onward.run(told.unwrap().parse().unwrap()).of_type::<u32>();
        assert_eq!(soon(child.result()).await.unwrap(), 6);
        let fork = child.fork("double").input(&50).await.unwrap();
        assert_eq!(soon(fork.result()).await.unwrap(), 100);
        assert_eq!(fork.status().await.unwrap().parent, None);
        run.signal("go", &1).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);
        assert_eq!(run.status().await.unwrap().signals, 2, "one end, and one signal");
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// It goes on with what its records were made with, in another process and under another build too.
#[tokio::test]
async fn a_fork_whose_worker_dies_goes_on_as_it_began() {
    const OPEN: Workflow<(), (Uuid, Uuid)> = Workflow::named("open");
    let (data, log) = (data(), Log::default());
    let serve = |process: &Process, build: &str, is_held: bool| {
        let of = log.clone();
        process.onward.worker().build(build).serve(OPEN, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let first = ctx.uuid();
                ctx.step("create", async |_| Ok::<_, Failure>(first)).await?;
                let second = ctx.uuid();
                let charge = ctx.step("charge", async |_| {
                    log.add(format!("charge {second}"));
                    Ok::<_, Failure>(second)
                });
                let second = charge.await?;
                let end = ctx.step("end", async |_| {
                    log.add("end");
                    if is_held {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>((first, second))
                });
                end.await
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first, "v1", false).start().await.unwrap();
    let run = first.onward.start(OPEN, &()).await.unwrap();
    let made = soon(run.result()).await.unwrap();
    worker.shutdown().await.unwrap();

    let held = Process::on(&data);
    let worker = serve(&held, "v1", true).start().await.unwrap();
    let fork = held.onward.run(run.id()).of_type::<(Uuid, Uuid)>().fork("charge").await.unwrap();
    log.until_lines("end", 2).await;
    held.kill(worker).await;
    let last = Process::on(&data);
    let worker = serve(&last, "v2", false).start().await.unwrap();
    let of_fork =
        soon(last.onward.run(fork.id()).of_type::<(Uuid, Uuid)>().result()).await.unwrap();
    assert_eq!(of_fork.0, made.0);
    assert_ne!(of_fork.1, made.1);
    assert_eq!(log.lines().len(), 5, "it is charged once by each: {:?}", log.lines());
    worker.shutdown().await.unwrap();
}
