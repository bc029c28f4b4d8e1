//! The way back itself: what is replayed, what waits, what is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use onward::testing::TestOnward;
use onward::{Code, Ctx, Failure, Onward, Retry, RunState, Workflow};

use super::{Log, WORK, steps_of};
use crate::stores::{on_each_store, until_state};

#[tokio::test]
async fn a_cancelled_run_without_undos_executes_no_body() {
    let onward = Onward::open("memory:").await.unwrap();
    let log = Log::default();
    let of = log.clone();
    let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
        let log = of.clone();
        async move {
            ctx.step("first", async |_| {
                log.add("first");
                Ok::<_, Failure>(())
            })
            .await?;
            let nap = ctx.sleep(Duration::from_secs(60 * 60));
            let beside = ctx.signal::<()>("go");
            tokio::select! {
                () = nap => {}
                went = beside => went?,
            }
            ctx.step("next", async |_| {
                log.add("next");
                Ok::<_, Failure>(())
            })
            .await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    until_state(&run, RunState::Waiting).await;
    run.cancel().await.unwrap();
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    assert_eq!(log.lines(), ["first"]);
    assert_eq!(steps_of(&run).await, ["first"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_undo_that_waits_parks_the_run_and_says_so() {
    let onward = TestOnward::new().await.unwrap();
    let worker = onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let charge = ctx.step("charge", async |_| Ok::<_, Failure>(7));
        let charge = charge.undo(|_, step| {
            let number = step.try_number();
            std::future::ready(if number < 3 { Err(Failure::new("busy")) } else { Ok(()) })
        });
        charge.undo_retry(Retry::fixed(Duration::from_secs(60 * 60)).tries(5)).await?;
        Err(Failure::fatal("lost").code("parcel_lost"))
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    onward.quiet().await;
    assert_eq!(run.status().await.unwrap().state, RunState::Waiting);
    let why = run.why().await.unwrap().to_string();
    assert!(why.contains("undoing step \"charge\"") && why.contains("try 2"), "{why}");
    run.cancel().await.unwrap();
    assert!(run.ended().await.unwrap().failure.unwrap().is("parcel_lost"));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_with_a_key_has_no_undo() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let mail = ctx.step("mail", async |_| Ok::<_, Failure>(()));
        mail.key("welcome").undo(async |(), _| Ok::<_, Failure>(())).await
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    let failure = run.ended().await.unwrap().failure.unwrap();
    assert!(failure.is(Code::InvalidOption.as_str()), "{failure}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn going_on_as_another_run_drops_the_undos() {
    const LAPS: Workflow<u32, u32> = Workflow::named("laps");
    let onward = Onward::open("memory:").await.unwrap();
    let log = Log::default();
    let of = log.clone();
    let worker = onward.worker().serve(LAPS, move |ctx: Ctx, lap: u32| {
        let log = of.clone();
        async move {
            log.step(&ctx, "lap", lap).await?;
            if lap < 2 {
                return ctx.continue_as(LAPS, &(lap + 1));
            }
            Err(Failure::fatal("tired"))
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(LAPS, &1).await.unwrap();
    assert_eq!(run.result().await.unwrap_err().code(), Code::RunFailed);
    assert_eq!(log.lines(), ["lap", "lap", "undo lap 2"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_child_undoes_what_it_did() {
    const CHILD: Workflow<(), ()> = Workflow::named("child");
    let onward = Onward::open("memory:").await.unwrap();
    let log = Log::default();
    let of = log.clone();
    let worker = onward.worker().linger(Duration::ZERO);
    let worker = worker.serve(CHILD, move |ctx: Ctx, ()| {
        let log = of.clone();
        async move {
            log.step(&ctx, "seat", 1).await?;
            ctx.sleep(Duration::from_secs(60 * 60)).await;
            Ok(())
        }
    });
    let worker = worker.serve(WORK, async |ctx: Ctx, ()| ctx.start(CHILD, &()).result().await);
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    log.until("seat").await;
    run.cancel().await.unwrap();
    log.until("undo seat 1").await;
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_transaction_is_undone_with_what_it_gave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onward.db");
    let db = onward::rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("create table stock (n integer not null); insert into stock values (5)")
        .unwrap();
    let onward = Onward::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let log = Log::default();
    let of = log.clone();
    let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let log = of.clone();
        async move {
            let reserve = ctx.sqlite_transaction("reserve", |db, _| {
                let take = "update stock set n = n - 1 returning n";
                db.query_row(take, (), |row| row.get::<_, u32>(0))
            });
            reserve
                .undo(move |left: u32, step| {
                    log.add(format!("{} {left}", step.id().split_once('/').unwrap().1));
                    std::future::ready(Ok::<_, Failure>(()))
                })
                .await?;
            Err(Failure::fatal("no"))
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    assert_eq!(run.ended().await.unwrap().state, RunState::Failed);
    assert_eq!(log.lines(), ["$undo/reserve 4"]);
    worker.shutdown().await.unwrap();
}

/// An undo that owns its run's `Ctx` does not keep the run in memory.
#[tokio::test]
async fn what_an_undo_owns_is_dropped_with_its_run() {
    let onward = Onward::open("memory:").await.unwrap();
    let owned = Arc::new(());
    let of = Arc::clone(&owned);
    let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let owned = Arc::clone(&of);
        async move {
            let (kept, told) = ((ctx.clone(), Arc::clone(&owned)), (ctx.clone(), owned));
            ctx.on_cancel(move |_| {
                let _ = &told;
                std::future::ready(Ok::<_, Failure>(()))
            });
            let step = ctx.step("reserve", async |_| Ok::<_, Failure>(()));
            step.undo(move |(), _| {
                let _ = &kept;
                std::future::ready(Ok::<_, Failure>(()))
            })
            .await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    run.result().await.unwrap();
    worker.shutdown().await.unwrap();
    assert!(Arc::strong_count(&owned) <= 2, "the handler's own may be left, and no run's");
}

/// The replay waits for something that is not from the run's `Ctx` before it comes to the call.
#[tokio::test]
async fn a_cancel_finds_what_a_replay_comes_to_only_after_a_foreign_await() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                ctx.step("first", async |_| Ok::<_, Failure>(())).await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
                ctx.on_cancel(move |_| {
                    log.add("told");
                    std::future::ready(Ok::<_, Failure>(()))
                });
                ctx.signal::<()>("never").await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        run.cancel().await.unwrap();
        assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
        assert_eq!(log.lines(), ["told"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// What a fork took along was done by another run, which still has it.
#[tokio::test]
async fn a_fork_undoes_only_what_it_did_itself() {
    on_each_store(async |onward| {
        let (log, is_lost) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let (of, lost) = (log.clone(), Arc::clone(&is_lost));
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
            let (log, lost) = (of.clone(), Arc::clone(&lost));
            async move {
                log.step(&ctx, "reserve", 1).await?;
                log.step(&ctx, "charge", 2).await?;
                // It parks here, so that what follows is preceded by a replay.
                ctx.sleep(Duration::from_millis(5)).await;
                let ship = ctx.step("ship", async |_| match lost.load(Ordering::SeqCst) {
                    true => Err(Failure::fatal("lost").code("parcel_lost")),
                    false => Ok(()),
                });
                ship.await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        run.result().await.unwrap();
        is_lost.store(true, Ordering::SeqCst);

        let all_inherited = run.fork("ship").await.unwrap();
        assert!(all_inherited.ended().await.unwrap().failure.unwrap().is("parcel_lost"));
        assert_eq!(log.lines(), ["reserve", "charge"], "nothing is undone");
        all_inherited.retry().await.unwrap();
        all_inherited.ended().await.unwrap();

        let fork = run.fork("charge").await.unwrap();
        assert!(fork.ended().await.unwrap().failure.unwrap().is("parcel_lost"));
        assert_eq!(log.lines()[2..], ["charge", "undo charge 2"]);
        let again = fork.fork("ship").await;
        assert_eq!(again.unwrap_err().code(), Code::RunUndone, "what it undid is not taken along");
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The cancel comes after the run last looked and before it has gone on: what it does on a cancel is done,
/// and what it did is undone.
#[tokio::test]
async fn a_run_that_is_asked_to_end_as_it_goes_on_is_undone() {
    const LAPS: Workflow<u32, u32> = Workflow::named("laps");
    on_each_store(async |onward| {
        let log = Log::default();
        let (of, client) = (log.clone(), onward.clone());
        let worker = onward.worker().serve(LAPS, move |ctx: Ctx, lap: u32| {
            let (log, client) = (of.clone(), client.clone());
            async move {
                let told = log.clone();
                ctx.on_cancel(move |_| {
                    told.add("told");
                    std::future::ready(Ok::<_, Failure>(()))
                });
                log.step(&ctx, "reserve", lap).await?;
                client.run(ctx.run_id()).cancel().await.map_err(Failure::from)?;
                ctx.continue_as(LAPS, &(lap + 1))
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(LAPS, &1).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), run.ended()).await;
        let ended = ended.expect("it ends").unwrap();
        assert_eq!((ended.id, ended.state), (run.id(), RunState::Cancelled));
        assert_eq!(ended.continued_as, None);
        assert_eq!(log.lines(), ["reserve", "told", "undo reserve 1"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// As above, while what came in is on its way to the store: what follows it in the history is not held up.
#[tokio::test]
async fn a_run_that_is_asked_to_end_as_it_goes_on_is_undone_after_what_it_recorded_last() {
    const LAPS: Workflow<u32, u32> = Workflow::named("laps");
    on_each_store(async |onward| {
        let log = Log::default();
        let (of, client) = (log.clone(), onward.clone());
        let worker = onward.worker().serve(LAPS, move |ctx: Ctx, lap: u32| {
            let (log, client) = (of.clone(), client.clone());
            async move {
                log.step(&ctx, "reserve", lap).await?;
                let mut polls = 0;
                let allowed = std::future::poll_fn(|_| {
                    polls += 1;
                    if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
                });
                tokio::select! {
                    biased;
                    go = ctx.signal::<()>("go") => go?,
                    () = allowed => {}
                }
                client.run(ctx.run_id()).cancel().await.map_err(Failure::from)?;
                ctx.continue_as(LAPS, &(lap + 1))
            }
        });
        let run = onward.start(LAPS, &1).await.unwrap();
        run.signal("go", &()).await.unwrap();
        run.signal("go", &()).await.unwrap();
        let worker = worker.start().await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), run.ended()).await;
        assert_eq!(ended.expect("it ends").unwrap().state, RunState::Cancelled);
        assert_eq!(log.lines(), ["reserve", "undo reserve 1"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}
