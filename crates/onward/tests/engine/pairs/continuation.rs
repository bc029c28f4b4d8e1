//! Runs that go on as others with something of every other feature under way.

use std::sync::Arc;
use std::time::Duration;

use onward::conformance::{Death, Held};
use onward::store::Store;
use onward::{Ctx, Entry, Failure, Query, RunState, Timestamp, Workflow};
use tokio::sync::Notify;

use super::{Log, on_each_coded_store, soon};
use crate::bank::Bank;
use crate::process::{Process, data};
use crate::stores::{on_each_store, until_state};

const LAPS: Workflow<u32, u32> = Workflow::named("laps");

/// A body that is dropped as its run goes on frees its key, and a result that is kept is that of all.
#[tokio::test]
async fn a_run_that_goes_on_leaves_no_key_behind() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(LAPS, move |ctx: Ctx, lap: u32| {
            let log = of.clone();
            async move {
                let send = ctx.step("send", async |_| {
                    log.add(format!("send {lap}"));
                    if lap == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>(lap)
                });
                let sent = tokio::select! {
                    biased;
                    sent = send.key("welcome") => sent?,
                    on = ctx.signal::<()>("on") => on.map(|()| 0)?,
                };
                if lap < 3 { ctx.continue_as(LAPS, &(lap + 1)) } else { Ok(sent) }
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(LAPS, &1).await.unwrap();
        log.until("send 1").await;
        run.signal("on", &()).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 2, "what the second run did");
        assert_eq!(log.lines(), ["send 1", "send 2"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// What is committed as the run goes on is in the history of the run that did it; a signal that comes
/// meanwhile is handed on.
#[tokio::test]
async fn a_transaction_that_is_under_way_as_its_run_goes_on_is_recorded() {
    let bank = Bank::open();
    let process = bank.process();
    let (leave, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let of = (Arc::clone(&leave), Arc::clone(&left));
    let worker = process.onward.worker().serve(LAPS, move |ctx: Ctx, lap: u32| {
        let (leave, left) = of.clone();
        async move {
            let note = ctx.sqlite_transaction("note", move |db, _| {
                db.execute("insert into notes values (?1)", [lap.to_string()])?;
                Ok::<_, Failure>(lap)
            });
            let both = async { tokio::try_join!(note, ctx.signal::<u32>("add")) };
            if lap == 2 {
                return both.await.map(|(noted, added)| noted + added);
            }
            tokio::select! {
                both = both => return Err(Failure::fatal(format!("{both:?}"))),
                () = leave.notified() => left.notify_one(),
            }
            ctx.continue_as(LAPS, &2)
        }
    });
    process.store.hold(Held::Transactions);
    let worker = worker.start().await.unwrap();
    let run = process.onward.start(LAPS, &1).await.unwrap();
    crate::bank::until(|| process.store.asked(Held::Transactions) > 0).await;
    run.signal("add", &5).await.unwrap();
    let recorded = async {
        let has_arrived = |record: &onward::Record| matches!(record.entry, Entry::Arrived(_));
        while !run.history().await.unwrap().iter().any(has_arrived) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon(recorded).await;
    leave.notify_one();
    soon(left.notified()).await;
    process.store.let_go(Held::Transactions);
    assert_eq!(soon(run.result()).await.unwrap(), 7);
    assert_eq!(bank.notes(), ["1", "2"]);
    assert!(bank.ends(run.id()).await.contains(&"note".to_owned()));
    worker.shutdown().await.unwrap();
}

const PARENT: Workflow<(), u32> = Workflow::named("parent");

/// The child is the last of those that went on: it is signalled, ended and awaited as the first would be.
#[tokio::test]
async fn a_child_that_goes_on_is_still_the_child() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO);
        let worker = worker.serve(LAPS, move |ctx: Ctx, lap: u32| {
            let log = of.clone();
            async move {
                log.step(&ctx, "lap").await?;
                if lap < 3 { ctx.continue_as(LAPS, &(lap + 1)) } else { ctx.signal("go").await }
            }
        });
        let worker = worker.serve(PARENT, async |ctx: Ctx, ()| ctx.start(LAPS, &1).result().await);
        let worker = worker.start().await.unwrap();
        for is_cancelled in [false, true] {
            let run = onward.start(PARENT, &()).await.unwrap();
            let last = async {
                loop {
                    let runs = onward.list(Query::default()).await.unwrap().runs;
                    let is_last = |run: &onward::Run| {
                        run.input.as_str() == "3" && run.state == RunState::Waiting
                    };
                    if let Some(last) = runs.iter().find(|run| is_last(run)) {
                        return last.clone();
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let last = soon(last).await;
            assert_eq!(last.parent.as_ref().unwrap().run, run.id());
            let child = onward.run(last.id).of_type::<u32>();
            if is_cancelled {
                until_state(&run, RunState::Waiting).await;
                run.cancel().await.unwrap();
                assert_eq!(soon(run.ended()).await.unwrap().state, RunState::Cancelled);
                assert_eq!(soon(child.ended()).await.unwrap().state, RunState::Cancelled);
                assert_eq!(log.lines()[6..], ["undo lap"], "that of the last");
            } else {
                child.signal("go", &7).await.unwrap();
                assert_eq!(soon(run.result()).await.unwrap(), 7);
            }
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// What is handed on was bound to the run that it was sent to.
#[tokio::test]
async fn signals_are_handed_on_through_a_codec() {
    on_each_coded_store(async |onward| {
        let run = onward.start(LAPS, &1).await.unwrap();
        run.signal("stop", &()).await.unwrap();
        for number in [1, 20, 300] {
            run.signal("add", &number).await.unwrap();
        }
        let worker = onward.worker().serve(LAPS, async |ctx: Ctx, lap: u32| {
            let (one, two) = (ctx.signal::<u32>("add"), ctx.signal::<u32>("add"));
            if lap == 2 {
                return Ok(one.await? + two.await? + ctx.signal::<u32>("add").await?);
            }
            tokio::select! {
                biased;
                stop = ctx.signal::<()>("stop") => stop?,
                one = one => return Err(Failure::fatal(format!("{one:?}"))),
                two = two => return Err(Failure::fatal(format!("{two:?}"))),
            }
            ctx.continue_as(LAPS, &2)
        });
        let worker = worker.start().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 321);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The process dies before or after each of its writes: there is one run for each lap, and each is done.
#[tokio::test]
async fn a_run_goes_on_as_one_other_whenever_its_process_dies() {
    for writes in 0..14 {
        for death in [Death::Before, Death::After] {
            let (data, log): (Arc<dyn Store>, _) = (data(), Log::default());
            let serve = |process: &Process| {
                let of = log.clone();
                process.onward.worker().serve(LAPS, move |ctx: Ctx, lap: u32| {
                    let log = of.clone();
                    async move {
                        log.step(&ctx, "lap").await?;
                        if lap < 4 { ctx.continue_as(LAPS, &(lap + 1)) } else { Ok(lap) }
                    }
                })
            };
            let first = Process::on(&data);
            let run = first.onward.start(LAPS, &1).key("k").await.unwrap();
            let worker = serve(&first).start().await.unwrap();
            first.store.die_after(writes, death);
            let ended = first.onward.run(run.id());
            let dies = async {
                tokio::select! {
                    () = first.store.died() => {}
                    _ = ended.ended() => {}
                }
            };
            soon(dies).await;
            first.kill(worker).await;
            let second = Process::on(&data);
            let worker = serve(&second).start().await.unwrap();
            let run = second.onward.run(run.id()).of_type::<u32>();
            assert_eq!(soon(run.result()).await.unwrap(), 4, "{writes} {death:?}");
            let runs = second.onward.list(Query::default()).await.unwrap().runs;
            let mut laps: Vec<_> = runs.iter().map(|run| run.input.as_str().to_owned()).collect();
            laps.sort();
            assert_eq!(laps, ["1", "2", "3", "4"], "{writes} {death:?}");
            worker.shutdown().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_run_that_goes_on_is_about_the_same_time_of_its_schedule() {
    const NIGHTLY: Workflow<u32, Option<Timestamp>> = Workflow::named("nightly");
    on_each_store(async |onward| {
        let worker = onward.worker().serve(NIGHTLY, async |ctx: Ctx, page: u32| match page {
            3 => Ok(ctx.scheduled_at()),
            _ => ctx.continue_as(NIGHTLY, &(page + 1)),
        });
        let worker = worker.start().await.unwrap();
        let nightly = onward.schedule("nightly");
        nightly.clone().every(Duration::from_secs(86_400)).start(NIGHTLY, &1).await.unwrap();
        let run = onward.run(nightly.trigger().await.unwrap().run().unwrap());
        let time = soon(run.clone().of_type::<Option<Timestamp>>().result()).await.unwrap();
        let first = run.own_status().await.unwrap();
        assert_eq!(time.unwrap().to_string(), first.tags["scheduled_at"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}
