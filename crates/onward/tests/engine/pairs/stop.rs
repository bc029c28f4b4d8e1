//! Cancels, deadlines and pauses of runs with something of every other feature under way.

use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward::conformance::Held;
use onward::store::{KeyAnswer, KeyHolder, SettleKey, TakeKey};
use onward::{
    Code, Ctx, Failure, OnConflict, Overlap, Query, RunHandle, RunState, StepFuture, Waits,
    Workflow,
};
use tokio::sync::Semaphore;

use super::{Log, on_each_coded_store, soon, start, until_heard};
use crate::bank::{self, Bank};
use crate::stores::{on_each_store, until_state};

const WORK: Workflow<u32, u32> = Workflow::named("work");

async fn assert_late<O: serde::de::DeserializeOwned>(run: &RunHandle<O>) {
    let failure = soon(run.ended()).await.unwrap().failure.unwrap();
    assert!(failure.is(Code::DeadlineExceeded.as_str()), "{failure}");
}

/// A holder whose time is over lets its key go, as one that is cancelled does.
#[tokio::test]
async fn the_key_of_a_run_that_is_late_is_free() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().cancel_grace(Duration::from_millis(10));
        let worker = worker.serve(WORK, move |ctx: Ctx, n: u32| {
            let log = of.clone();
            async move {
                let send = ctx.step("send", async |_| {
                    log.add(format!("send {n}"));
                    if n == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>(n)
                });
                send.key("welcome").await
            }
        });
        let worker = worker.start().await.unwrap();
        let first = onward.start(WORK, &1).timeout(Duration::from_secs(1)).await.unwrap();
        log.until("send 1").await;
        let second = onward.start(WORK, &2).await.unwrap();
        assert_late(&first).await;
        assert_eq!(soon(second.result()).await.unwrap(), 2);
        assert_eq!(log.lines(), ["send 1", "send 2"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The key comes free while the run that waits for it is paused.
#[tokio::test]
async fn a_paused_run_takes_no_key() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, n: u32| {
            let log = of.clone();
            async move {
                let send = ctx.step("send", async |_| {
                    log.add(format!("send {n}"));
                    Ok::<_, Failure>(n)
                });
                send.key("welcome").await
            }
        });
        let keys = onward.store().keys().unwrap();
        let holder = KeyHolder { id: "else".to_owned(), attempt: 1, caller: "far".to_owned() };
        let (key, lease_ms) = ("welcome".to_owned(), 60_000);
        let take =
            TakeKey { key, holder, fingerprint: None, lease_ms, counted: None, seen_expired: None };
        let KeyAnswer::Held(lease) = keys.take_key(take).await.unwrap() else {
            panic!("it is free")
        };
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &1).await.unwrap();
        let waits = async {
            let of_key = |run: onward::Run| matches!(run.waits_for, Some(Waits::Key { .. }));
            while !of_key(run.status().await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        soon(waits).await;
        run.pause().await.unwrap();
        keys.settle_key(lease, SettleKey::free()).await.unwrap();
        until_state(&run, RunState::Queued).await;
        let other = onward.start(WORK, &2).await.unwrap();
        assert_eq!(soon(other.result()).await.unwrap(), 2, "it is free for others");
        run.resume().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 2, "what the other did");
        assert_eq!(log.lines(), ["send 2"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A transaction is committed while its run is stopped: it is recorded, and undone or gone on from.
#[tokio::test]
async fn a_transaction_that_is_under_way_is_recorded_as_its_run_is_stopped() {
    for how in ["is cancelled", "is late", "is paused"] {
        let (bank, log) = (Bank::open(), Log::default());
        let process = bank.process();
        let of = log.clone();
        let worker = process.onward.worker().serve(WORK, move |ctx: Ctx, n: u32| {
            let log = of.clone();
            async move {
                let note = ctx.sqlite_transaction("note", |db, _| {
                    db.execute("insert into notes values ('note')", ())?;
                    Ok::<_, Failure>(())
                });
                let note = note.undo(move |(), _| {
                    log.add("undo note");
                    ready(Ok::<_, Failure>(()))
                });
                note.await?;
                ctx.step("next", async |_| Ok::<_, Failure>(n)).await
            }
        });
        let worker = start(worker, &log).await;
        process.store.hold(Held::Transactions);
        let mut run = process.onward.start(WORK, &7);
        if how == "is late" {
            run = run.timeout(Duration::from_secs(1));
        }
        let run = run.await.unwrap();
        bank::until(|| process.store.asked(Held::Transactions) > 0).await;
        match how {
            "is cancelled" => run.cancel().await.unwrap(),
            "is paused" => run.pause().await.unwrap(),
            _ => {
                let late = run.status().await.unwrap().deadline_at.unwrap();
                process.onward.store().clock().sleep_until(late).await;
            }
        }
        until_heard(&process.onward, &log).await;
        process.store.let_go(Held::Transactions);
        if how == "is paused" {
            until_state(&run, RunState::Queued).await;
            assert_eq!(bank.ends(run.id()).await, ["note"]);
            run.resume().await.unwrap();
            assert_eq!(soon(run.result()).await.unwrap(), 7);
        } else {
            soon(run.ended()).await.unwrap();
            assert_eq!(bank.ends(run.id()).await, ["note", "$undo", "$undo/note"], "it {how}");
        }
        assert_eq!(log.count("undo note"), usize::from(how != "is paused"));
        assert_eq!(bank.notes(), ["note"], "it {how}");
        worker.shutdown().await.unwrap();
    }
}

/// What executes of a fan-out may finish, and nothing more of it begins.
#[tokio::test]
async fn nothing_more_of_a_fan_out_begins_once_its_run_is_stopped() {
    on_each_store(async |onward| {
        let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
        let of = (log.clone(), Arc::clone(&gate));
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, _| {
            let (log, gate) = of.clone();
            async move {
                let square = |n: u32| {
                    let (log, gate) = (log.clone(), Arc::clone(&gate));
                    ctx.step("square", move |step| {
                        let (log, gate) = (log.clone(), Arc::clone(&gate));
                        async move {
                            log.add("square");
                            tokio::select! {
                                () = step.cancelled() => return Err(Failure::fatal("stopped")),
                                permit = gate.acquire() => permit.unwrap().forget(),
                            }
                            Ok(n * n)
                        }
                    })
                };
                Ok(ctx.all(0..6, 2, square).await?.iter().sum())
            }
        });
        let worker = start(worker, &log).await;
        let mut begun = 0;
        for how in ["is cancelled", "is late", "is paused"] {
            let mut run = onward.start(WORK, &0);
            if how == "is late" {
                run = run.timeout(Duration::from_secs(1));
            }
            let run = run.await.unwrap();
            begun += 2;
            log.until_lines("square", begun).await;
            match how {
                "is cancelled" => run.cancel().await.unwrap(),
                "is paused" => {
                    run.pause().await.unwrap();
                    until_heard(&onward, &log).await;
                    gate.add_permits(2);
                    until_state(&run, RunState::Queued).await;
                    assert_eq!(run.history().await.unwrap().len(), 2, "what began is recorded");
                    assert_eq!(log.count("square"), begun);
                    run.resume().await.unwrap();
                    gate.add_permits(4);
                    begun += 4;
                }
                _ => assert_late(&run).await,
            }
            let expected = if how == "is paused" { RunState::Completed } else { RunState::Failed };
            let expected = if how == "is cancelled" { RunState::Cancelled } else { expected };
            assert_eq!(soon(run.ended()).await.unwrap().state, expected, "it {how}");
            assert_eq!(log.count("square"), begun, "it {how}");
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The second may begin when it is polled, which is once the first is done: by then the run is paused.
#[tokio::test]
async fn a_step_that_may_begin_does_not_once_its_run_is_paused() {
    on_each_store(async |onward| {
        let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
        let of = (log.clone(), Arc::clone(&gate));
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, _| {
            let (log, gate) = of.clone();
            async move {
                let mut one = ctx.step("one", async |_| {
                    log.add("one");
                    gate.acquire().await.unwrap().forget();
                    Ok::<_, Failure>(1)
                });
                let mut two = ctx.step("two", async |_| {
                    log.add("two");
                    Ok::<_, Failure>(2)
                });
                let mut has_asked = false;
                let first = poll_fn(|cx| {
                    if !has_asked {
                        has_asked = true;
                        assert!(Pin::new(&mut two).poll(cx).is_pending());
                    }
                    Pin::new(&mut one).poll(cx)
                });
                Ok(first.await? + two.await?)
            }
        });
        let worker = start(worker, &log).await;
        let run = onward.start(WORK, &0).await.unwrap();
        log.until("one").await;
        run.pause().await.unwrap();
        until_heard(&onward, &log).await;
        gate.add_permits(1);
        until_state(&run, RunState::Queued).await;
        assert_eq!(log.count("two"), 0);
        run.resume().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 3);
        assert_eq!((log.count("one"), log.count("two")), (1, 1));
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A pause holds a run on its way back as it does one on its way forward.
#[tokio::test]
async fn a_run_that_is_undone_is_paused_between_two_undos() {
    on_each_store(async |onward| {
        let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
        let of = (log.clone(), Arc::clone(&gate));
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, _| {
            let (log, gate) = of.clone();
            async move {
                log.step(&ctx, "reserve").await?;
                let charge = ctx.step("charge", async |_| Ok::<_, Failure>(()));
                let charge = charge.undo(move |(), _| {
                    let (log, gate) = (log.clone(), Arc::clone(&gate));
                    async move {
                        log.add("undo charge");
                        gate.acquire().await.unwrap().forget();
                        Ok::<_, Failure>(())
                    }
                });
                charge.await?;
                Err(Failure::fatal("lost").code("parcel_lost"))
            }
        });
        let worker = start(worker, &log).await;
        let run = onward.start(WORK, &0).await.unwrap();
        log.until("undo charge").await;
        run.pause().await.unwrap();
        until_heard(&onward, &log).await;
        gate.add_permits(1);
        until_state(&run, RunState::Queued).await;
        assert_eq!(log.count("undo reserve"), 0);
        run.resume().await.unwrap();
        let failure = soon(run.ended()).await.unwrap().failure.unwrap();
        assert!(failure.is("parcel_lost"), "{failure}");
        assert_eq!((log.count("undo charge"), log.count("undo reserve")), (1, 1));
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The run that a start replaces is paused: it ends all the same, and the next one begins.
#[tokio::test]
async fn a_paused_run_is_replaced() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, n: u32| {
            let log = of.clone();
            async move {
                log.step(&ctx, "reserve").await?;
                Ok(n + ctx.signal::<u32>("go").await?)
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &1).key("order-7").await.unwrap();
        until_state(&run, RunState::Waiting).await;
        run.pause().await.unwrap();
        let next = onward.start(WORK, &2).key("order-7").on_conflict(OnConflict::Replace);
        let next = next.await.unwrap();
        next.signal("go", &5).await.unwrap();
        assert_eq!(soon(run.ended()).await.unwrap().state, RunState::Cancelled);
        assert_eq!(soon(next.result()).await.unwrap(), 7);
        assert_eq!(log.lines(), ["reserve", "undo reserve", "reserve"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A schedule ends the run before, paused or not, and what that has to undo is undone first.
#[tokio::test]
async fn a_schedule_cancels_a_run_that_is_paused() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, n: u32| {
            let log = of.clone();
            async move {
                log.step(&ctx, "reserve").await?;
                Ok(n + ctx.signal::<u32>("go").await?)
            }
        });
        let worker = worker.start().await.unwrap();
        let daily = onward.schedule("daily");
        let setup = daily.clone().every(Duration::from_secs(86_400));
        setup.overlap(Overlap::CancelPrevious).start(WORK, &2).await.unwrap();
        let first = onward.run(daily.trigger().await.unwrap().run().unwrap());
        until_state(&first, RunState::Waiting).await;
        first.pause().await.unwrap();
        let second = onward.run(daily.trigger().await.unwrap().run().unwrap()).of_type::<u32>();
        second.signal("go", &5).await.unwrap();
        assert_eq!(soon(first.ended()).await.unwrap().state, RunState::Cancelled);
        assert_eq!(soon(second.result()).await.unwrap(), 7);
        assert_eq!(log.lines(), ["reserve", "undo reserve", "reserve"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Whoever pauses needs no key of the payloads, and who resumes goes on with all of them.
#[tokio::test]
async fn a_run_is_paused_through_a_codec() {
    on_each_coded_store(async |onward| {
        let worker =
            onward.worker().linger(Duration::ZERO).serve(WORK, async |ctx: Ctx, n: u32| {
                let one = ctx.step("one", async |_| Ok::<_, Failure>(n + 1)).await?;
                Ok(one + ctx.signal::<u32>("go").await?)
            });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &1).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        run.pause().await.unwrap();
        run.signal("go", &5).await.unwrap();
        until_state(&run, RunState::Queued).await;
        run.resume().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A step with the key, whatever its name.
fn keyed(ctx: &Ctx, log: &Log, name: &'static str) -> StepFuture<'static, u32> {
    let log = log.clone();
    let step = ctx.step(name, move |_| {
        log.add("send");
        async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok::<_, Failure>(7)
        }
    });
    step.key("welcome")
}

/// Each of them has the key in turn, or is given what is kept with it; the child as its parent.
#[tokio::test]
async fn the_steps_of_a_family_with_one_key_execute_once() {
    const CHILD: Workflow<(), u32> = Workflow::named("child");
    on_each_store(async |onward| {
        let log = Log::default();
        let (of, of_child) = (log.clone(), log.clone());
        let worker = onward.worker().serve(CHILD, move |ctx: Ctx, ()| {
            let log = of_child.clone();
            async move { keyed(&ctx, &log, "child").await }
        });
        let worker = worker.serve(WORK, move |ctx: Ctx, _| {
            let log = of.clone();
            async move {
                let (one, two) = (keyed(&ctx, &log, "one"), keyed(&ctx, &log, "two"));
                let child = ctx.start(CHILD, &()).result();
                let (one, two, child) = tokio::join!(one, two, child);
                Ok(one? + two? + child?)
            }
        });
        let worker = worker.start().await.unwrap();
        // The run's own key has the same text, and nothing to do with it.
        let run = onward.start(WORK, &0).key("welcome").await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 21);
        assert_eq!(log.lines(), ["send"]);
        assert_eq!(onward.by_key(WORK, "welcome").await.unwrap().id(), run.id());
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A paused child keeps its parent waiting, and no longer than it is paused.
#[tokio::test]
async fn a_parent_waits_for_a_child_that_is_paused() {
    const CHILD: Workflow<(), u32> = Workflow::named("child");
    on_each_store(async |onward| {
        let worker = onward.worker().linger(Duration::ZERO);
        let worker = worker.serve(CHILD, async |ctx: Ctx, ()| ctx.signal::<u32>("go").await);
        let worker = worker
            .serve(WORK, async |ctx: Ctx, n: u32| Ok(n + ctx.start(CHILD, &()).result().await?));
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &1).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        let runs = onward.list(Query::default()).await.unwrap().runs;
        let child = onward.run(runs.iter().find(|run| run.parent.is_some()).unwrap().id);
        until_state(&child, RunState::Waiting).await;
        child.pause().await.unwrap();
        child.signal("go", &6).await.unwrap();
        until_state(&child, RunState::Queued).await;
        assert_eq!(run.status().await.unwrap().state, RunState::Waiting);
        child.resume().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}
