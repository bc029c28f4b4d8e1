//! Retries of runs that failed with something of every other feature.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Entry, Failure, RunState, Timestamp, Workflow};

use super::{Log, on_each_coded_store, soon};
use crate::bank::Bank;
use crate::process::{Process, data};
use crate::stores::{on_each_store, until_state};

const WORK: Workflow<(), u32> = Workflow::named("work");
const CHILD: Workflow<(), u32> = Workflow::named("child");

/// What fails until it is mended.
#[derive(Clone, Default)]
struct Fault(Arc<AtomicBool>);

impl Fault {
    fn mend(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn pay(&self, cents: u32) -> Result<u32, Failure> {
        match self.0.load(Ordering::SeqCst) {
            true => Ok(cents),
            false => Err(Failure::fatal("no money").code("no_money")),
        }
    }
}

async fn assert_no_money(run: &onward::RunHandle<u32>) {
    let error = soon(run.result()).await.unwrap_err();
    assert!(error.failure().unwrap().is("no_money"), "{error}");
}

/// A failure that is kept with a key is that of every run, and of a retry, until the key is released.
#[tokio::test]
async fn a_retry_meets_the_failure_that_is_kept_with_a_key() {
    on_each_store(async |onward| {
        let (log, fault) = (Log::default(), Fault::default());
        let of = (log.clone(), fault.clone());
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let (log, fault) = of.clone();
            async move {
                let pay = ctx.step("pay", async |_| {
                    log.add("pay");
                    fault.pay(7)
                });
                pay.key("order-7").keep_failure().await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_no_money(&run).await;
        fault.mend();
        run.retry().await.unwrap();
        assert_no_money(&run).await;
        assert_eq!(log.count("pay"), 1);
        onward.release_key("order-7").await.unwrap();
        run.retry().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);
        assert_eq!(log.count("pay"), 2);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A failure that is not kept leaves the key free for the retry.
#[tokio::test]
async fn a_retry_executes_a_step_whose_key_its_failure_left_free() {
    on_each_store(async |onward| {
        let fault = Fault::default();
        let of = fault.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let fault = of.clone();
            async move { ctx.step("pay", async |_| fault.pay(7)).key("order-7").await }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_no_money(&run).await;
        assert!(onward.step_key("order-7").await.unwrap().is_none());
        fault.mend();
        run.retry().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The transaction of the child failed it, and the child its parent: one retry mends both, and nothing that
/// is committed is done again.
#[tokio::test]
async fn a_retry_reaches_the_transaction_of_a_child() {
    let (bank, fault) = (Bank::open(), Fault::default());
    let process = bank.process();
    let of = fault.clone();
    let note = |ctx: &Ctx, name: &'static str, fault: Fault| {
        ctx.sqlite_transaction(name, move |db, _| {
            db.execute("insert into notes values (?1)", [name])?;
            fault.pay(7)
        })
    };
    let mended = Fault::default();
    mended.mend();
    let worker = process.onward.worker().serve(CHILD, move |ctx: Ctx, ()| {
        let (fault, mended) = (of.clone(), mended.clone());
        async move {
            note(&ctx, "seat", mended).await?;
            note(&ctx, "pay", fault).await
        }
    });
    let worker = worker.serve(WORK, move |ctx: Ctx, ()| async move {
        let mended = Fault::default();
        mended.mend();
        let beside = note(&ctx, "order", mended);
        let (child, beside) = tokio::join!(ctx.start(CHILD, &()).result(), beside);
        Ok(child? + beside?)
    });
    let worker = worker.start().await.unwrap();
    let run = process.onward.start(WORK, &()).await.unwrap();
    assert_no_money(&run).await;
    fault.mend();
    run.retry().await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), 14);
    let mut notes = bank.notes();
    notes.sort();
    assert_eq!(notes, ["order", "pay", "seat"]);
    worker.shutdown().await.unwrap();
}

/// What was taken stays taken, and what was not is still there.
#[tokio::test]
async fn a_retried_run_has_its_signals() {
    on_each_store(async |onward| {
        let fault = Fault::default();
        let of = fault.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
            let fault = of.clone();
            async move {
                let first = ctx.signal::<u32>("add").await?;
                ctx.sleep(Duration::from_millis(5)).await;
                let paid = ctx.step("pay", async |_| fault.pay(100)).await?;
                Ok(first + paid + ctx.signal::<u32>("add").await?)
            }
        });
        let run = onward.start(WORK, &()).await.unwrap();
        run.signal("add", &1).await.unwrap();
        run.signal("add", &20).await.unwrap();
        let worker = worker.start().await.unwrap();
        assert_no_money(&run).await;
        let late = run.signal("add", &3).await.unwrap_err();
        assert_eq!(late.code(), Code::RunFinished);
        fault.mend();
        run.retry().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 121);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A run with something to do on a cancel, and nothing else to undo, may be retried, and cancelled then.
#[tokio::test]
async fn a_retried_run_that_is_cancelled_does_what_it_has_to() {
    on_each_store(async |onward| {
        let (log, fault) = (Log::default(), Fault::default());
        let of = (log.clone(), fault.clone());
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
            let (log, fault) = of.clone();
            async move {
                let told = log.clone();
                ctx.on_cancel(move |_| {
                    told.add("told");
                    ready(Ok::<_, Failure>(()))
                });
                let paid = ctx.step("pay", async |_| fault.pay(7)).await?;
                log.step(&ctx, "seat").await?;
                Ok(paid + ctx.signal::<u32>("go").await?)
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_no_money(&run).await;
        assert!(log.lines().is_empty(), "it was not cancelled");
        fault.mend();
        run.retry().await.unwrap();
        until_state(&run, RunState::Waiting).await;
        run.cancel().await.unwrap();
        assert_eq!(soon(run.ended()).await.unwrap().state, RunState::Cancelled);
        assert_eq!(log.lines(), ["seat", "told", "undo seat"]);
        assert_eq!(run.retry().await.unwrap_err().code(), Code::RunUndone);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_retried_run_is_about_the_same_time_of_its_schedule() {
    const NIGHTLY: Workflow<(), (u32, Option<Timestamp>)> = Workflow::named("nightly");
    on_each_store(async |onward| {
        let fault = Fault::default();
        let of = fault.clone();
        let worker = onward.worker().serve(NIGHTLY, move |ctx: Ctx, ()| {
            let fault = of.clone();
            async move {
                let time = ctx.scheduled_at();
                Ok((ctx.step("pay", async |_| fault.pay(7)).await?, time))
            }
        });
        let worker = worker.start().await.unwrap();
        let nightly = onward.schedule("nightly");
        nightly.clone().every(Duration::from_secs(86_400)).start(NIGHTLY, &()).await.unwrap();
        let run = onward.run(nightly.trigger().await.unwrap().run().unwrap());
        let run = run.of_type::<(u32, Option<Timestamp>)>();
        assert_eq!(soon(run.result()).await.unwrap_err().code(), Code::RunFailed);
        fault.mend();
        run.retry().await.unwrap();
        let (paid, time) = soon(run.result()).await.unwrap();
        assert_eq!(paid, 7);
        assert_eq!(time.unwrap().to_string(), run.status().await.unwrap().tags["scheduled_at"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The end of a child is told twice, and is encoded for its parent each time.
#[tokio::test]
async fn a_retry_reaches_a_child_through_a_codec() {
    on_each_coded_store(async |onward| {
        let fault = Fault::default();
        let of = fault.clone();
        let worker = onward.worker().serve(CHILD, move |ctx: Ctx, ()| {
            let fault = of.clone();
            async move { ctx.step("pay", async |_| fault.pay(7)).await }
        });
        let worker = worker.serve(WORK, async |ctx: Ctx, ()| {
            let paid = ctx.start(CHILD, &()).result().await?;
            ctx.step("note", async |_| Ok::<_, Failure>(paid)).await
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_no_money(&run).await;
        fault.mend();
        run.retry().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 7);
        assert_eq!(soon(run.fork("note").await.unwrap().result()).await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// What is recorded of a fan-out is not done again; what failed it, and what was dropped, is.
#[tokio::test]
async fn a_retry_does_the_rest_of_a_fan_out() {
    on_each_store(async |onward| {
        let (log, fault) = (Log::default(), Fault::default());
        let of = (log.clone(), fault.clone());
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let (log, fault) = of.clone();
            async move {
                let square = |n: u32| {
                    let (log, fault) = (log.clone(), fault.clone());
                    ctx.step("square", move |_| {
                        log.add(format!("square {n}"));
                        ready(if n == 4 { fault.pay(16) } else { Ok(n * n) })
                    })
                };
                Ok(ctx.all(0..9, 3, square).await?.iter().sum())
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_no_money(&run).await;
        let history = run.history().await.unwrap();
        let is_done = |record: &&onward::Record| matches!(record.entry, Entry::Done(_));
        let (done, before) = (history.iter().filter(is_done).count(), log.lines().len());
        assert!(done >= 3, "{history:?}");
        fault.mend();
        run.retry().await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap(), 204);
        assert_eq!(log.lines().len() - before, 9 - done, "{:?}", log.lines());
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The retry is the store's: it goes on wherever the run is claimed next.
#[tokio::test]
async fn a_retried_run_whose_worker_dies_goes_on() {
    let (data, log, fault) = (data(), Log::default(), Fault::default());
    let serve = |process: &Process, is_held: bool| {
        let of = (log.clone(), fault.clone());
        process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let (log, fault) = of.clone();
            async move {
                let before = ctx.step("before", async |_| {
                    log.add("before");
                    Ok::<_, Failure>(1)
                });
                let before = before.await?;
                let pay = ctx.step("pay", async |_| {
                    log.add("pay");
                    let paid = fault.pay(7);
                    if is_held && paid.is_ok() {
                        std::future::pending::<()>().await;
                    }
                    paid
                });
                Ok(before + pay.await?)
            }
        })
    };
    let first = Process::on(&data);
    let worker = serve(&first, true).start().await.unwrap();
    let run = first.onward.start(WORK, &()).await.unwrap();
    assert_no_money(&run).await;
    fault.mend();
    run.retry().await.unwrap();
    log.until_lines("pay", 2).await;
    first.kill(worker).await;
    let second = Process::on(&data);
    let worker = serve(&second, false).start().await.unwrap();
    let run = second.onward.run(run.id()).of_type::<u32>();
    assert_eq!(soon(run.result()).await.unwrap(), 8);
    assert_eq!(log.lines(), ["before", "pay", "pay", "pay"]);
    worker.shutdown().await.unwrap();
}
