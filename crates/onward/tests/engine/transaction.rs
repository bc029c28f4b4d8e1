//! P9: a transactional step's writes and its record are one commit; and P8 with transactions: the
//! order of the records is the order of delivery, whichever write is answered first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onward::conformance::{Held, LossyStore};
use onward::rusqlite::Connection;
use onward::{Ctx, Entry, Failure, Onward, Retry, RunHandle, Step, TransactionFuture, Workflow};

use crate::bank::{Bank, Process, Seen, block_until, time_for_a_fault, until};

const WORK: Workflow<(), String> = Workflow::named("work");

fn insert(db: &Connection, text: &str) -> Result<String, Failure> {
    db.execute("insert into notes values (?1)", [text])?;
    Ok(text.to_owned())
}

/// A transaction that leaves its name.
fn noting(ctx: &Ctx, name: &'static str) -> TransactionFuture<'static, String> {
    ctx.sqlite_transaction(name, move |db, _| insert(db, name))
}

fn text(text: &str) -> Result<String, Failure> {
    Ok(text.to_owned())
}

async fn start(process: &Process) -> RunHandle<String> {
    process.onward.start(WORK, &()).key("k").await.unwrap()
}

#[test]
fn a_transaction_goes_wherever_a_step_goes() {
    fn assert_like_a_step<F: Future + Send + Unpin>() {}
    assert_like_a_step::<TransactionFuture<'static, String>>();
    assert_like_a_step::<onward::StepFuture<'static, String>>();
}

#[tokio::test]
async fn the_writes_and_the_record_are_one_commit() {
    let bank = Bank::open();
    let process = bank.process();
    let worker = process.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let one = noting(&ctx, "one").await?;
        let step_id = ctx.sqlite_transaction("two", |db, step: &Step| insert(db, step.id()));
        Ok(format!("{one} {}", step_id.id("b").await?))
    });
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    let two = format!("{}/two#=b", run.id());
    assert_eq!(run.result().await.unwrap(), format!("one {two}"));
    assert_eq!(bank.notes(), ["one".to_owned(), two]);
    assert_eq!(bank.ends(run.id()).await, ["one", "two#=b"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_failed_try_leaves_nothing_and_is_tried_again() {
    let bank = Bank::open();
    let process = bank.process();
    let worker = process.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let third = ctx.sqlite_transaction("flaky", |db, step: &Step| {
            let text = insert(db, &format!("try {}", step.try_number()))?;
            if step.try_number() < 3 { Err(Failure::new("not yet")) } else { Ok(text) }
        });
        third.retry(Retry::fixed(Duration::from_millis(1))).await
    });
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    assert_eq!(run.result().await.unwrap(), "try 3");
    assert_eq!(bank.notes(), ["try 3"]);
    let kinds: Vec<_> = run.history().await.unwrap().iter().map(|r| r.entry.kind()).collect();
    assert_eq!(
        kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
        ["try_failed", "try_failed", "done"]
    );
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_result_that_cannot_be_recorded_undoes_the_writes() {
    let bank = Bank::open();
    let process = bank.process();
    let worker = process.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let map = ctx.sqlite_transaction("map", |db, _| {
            insert(db, "bad")?;
            Ok::<_, Failure>(HashMap::from([((1, 2), 3)]))
        });
        let panic = ctx.sqlite_transaction("panic", |db, _| -> Result<(), Failure> {
            insert(db, "bad")?;
            panic!("at once")
        });
        let never = Retry::never();
        let (map, panic) = tokio::join!(map.retry(never.clone()), panic.retry(never));
        Ok(format!("{} {}", map.unwrap_err().code, panic.unwrap_err().code))
    });
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    assert_eq!(run.result().await.unwrap(), "not_serializable panic");
    assert_eq!(bank.notes(), [""; 0]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_body_cannot_take_steps() {
    let bank = Bank::open();
    let process = bank.process();
    let worker = process.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let inner = ctx.clone();
        let outer = ctx.sqlite_transaction("outer", move |_, _| {
            let inner = inner.step("inner", async |_| text("inner"));
            let polled = futures::FutureExt::now_or_never(inner);
            polled.unwrap_or_else(|| text("not refused"))
        });
        Ok(outer.await.unwrap_err().code.clone())
    });
    let worker = worker.start().await.unwrap();
    assert_eq!(start(&process).await.result().await.unwrap(), "step_nested");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn another_store_says_what_to_write_instead() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(WORK, async |ctx: Ctx, ()| noting(&ctx, "one").await);
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    let error = run.result().await.unwrap_err();
    let failure = error.failure().unwrap();
    assert!(failure.is("transaction_unsupported"), "{failure}");
    assert!(failure.message.contains("ctx.step"), "{failure}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_lost_applies_the_effect_once() {
    let bank = Bank::open();
    let process = bank.process();
    process.store.lose_next_transactions(2);
    let worker = process.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let (one, two) = tokio::join!(noting(&ctx, "one"), noting(&ctx, "two"));
        Ok(format!("{} {}", one?, two?))
    });
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    assert_eq!(run.result().await.unwrap(), "one two");
    let mut notes = bank.notes();
    notes.sort();
    assert_eq!(notes, ["one", "two"]);
    assert_eq!(process.store.asked(Held::Transactions), 4);
    worker.shutdown().await.unwrap();
}

/// While it is unknown whether a transaction was committed, its number is open.
#[tokio::test]
async fn a_record_waits_for_a_transaction_whose_answer_was_lost() {
    let bank = Arc::new(Bank::open());
    let (process, seen) = (bank.process(), Seen::default());
    process.store.lose_next_transactions(2);
    let with = (Arc::clone(&bank), seen.clone());
    let worker = process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let (bank, seen) = with.clone();
        async move {
            let run = ctx.run_id();
            let plain = ctx.step("plain", async |_| {
                bank.until_done(run, "one").await;
                text("plain")
            });
            let plain = async { plain.await.inspect(|text| seen.note(text)) };
            let one = async { noting(&ctx, "one").await.inspect(|text| seen.note(text)) };
            let (plain, one) = tokio::join!(plain, one);
            Ok(format!("{} {}", plain?, one?))
        }
    });
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    assert_eq!(run.result().await.unwrap(), "plain one");
    assert_eq!(seen.take(), ["one", "plain"]);
    assert_eq!(bank.notes(), ["one"]);
    worker.shutdown().await.unwrap();
}

/// The limit follows the lease, which a body must not cost.
#[tokio::test]
async fn a_body_may_take_half_a_lease() {
    let bank = Bank::open();
    let process = bank.process();
    let worker = process.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        let slow = ctx.sqlite_transaction("slow", |db, _| {
            insert(db, "slow")?;
            std::thread::sleep(Duration::from_millis(550));
            text("slow")
        });
        Ok(slow.retry(Retry::never()).await.unwrap_err().code.clone())
    });
    let worker = worker.lease(Duration::from_secs(1)).start().await.unwrap();
    assert_eq!(start(&process).await.result().await.unwrap(), "transaction_timeout");
    assert_eq!(bank.notes(), [""; 0]);
    worker.shutdown().await.unwrap();
}

/// What the two branches of an interleaving are: an ordinary step and a transaction, either of
/// which takes the lower number, and is answered last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Plain,
    Transaction,
}

#[derive(Clone, Copy)]
enum Combined {
    Join,
    Select,
}

/// A function in which an ordinary step and a transaction meet, and then a last step.
async fn meet(
    ctx: Ctx,
    (bank, store, seen): (Arc<Bank>, Arc<LossyStore>, Seen),
    first: First,
    combined: Combined,
) -> Result<String, Failure> {
    let run = ctx.run_id();
    let plain = async {
        let step = ctx.step("plain", async |_| {
            if first == First::Transaction {
                bank.until_done(run, "transaction").await;
            }
            text("plain")
        });
        step.await.inspect(|text| seen.note(text))
    };
    let transaction = async {
        let before = store.asked(Held::Records);
        let store = Arc::clone(&store);
        let step = ctx.sqlite_transaction("transaction", move |db, _| {
            if first == First::Plain {
                block_until(|| store.asked(Held::Records) > before);
            }
            insert(db, "transaction")
        });
        step.await.inspect(|text| seen.note(text))
    };
    let won = match combined {
        Combined::Join => {
            let (plain, transaction) = tokio::join!(plain, transaction);
            format!("{} {}", plain?, transaction?)
        }
        Combined::Select => tokio::select! {
            won = plain => won?,
            won = transaction => won?,
        },
    };
    ctx.step(format!("crown {won}"), async |_| {
        if store.asked(Held::Transactions) > 0 {
            std::future::pending::<()>().await;
        }
        text(&won)
    })
    .await
}

/// Holds back the answer of whichever has the lower number until the other's write is done, and
/// finds it delivered first, live; and the same after a crash.
async fn lower_number_is_delivered_first(first: First, combined: Combined) {
    let bank = Arc::new(Bank::open());
    let (process, seen) = (bank.process(), Seen::default());
    let serve = |process: &Process| {
        let with = (Arc::clone(&bank), Arc::clone(&process.store), seen.clone());
        let work = move |ctx: Ctx, ()| meet(ctx, with.clone(), first, combined);
        process.onward.worker().serve(WORK, work).start()
    };
    let (lower, higher, held) = match first {
        First::Plain => ("plain", "transaction", Held::Records),
        First::Transaction => ("transaction", "plain", Held::Transactions),
    };
    process.store.hold(held);
    let worker = serve(&process).await.unwrap();
    let run = start(&process).await.id();
    bank.until_done(run, higher).await;
    time_for_a_fault().await;
    assert_eq!(seen.take(), [""; 0], "{lower} has the lower number and is not answered");
    process.store.let_go(held);
    let expected = match combined {
        Combined::Join => vec![lower, higher],
        Combined::Select => vec![lower],
    };
    until(|| seen.has(expected[expected.len() - 1])).await;
    time_for_a_fault().await;
    assert_eq!(seen.take(), expected, "live");
    assert_eq!(bank.ends(run).await, [lower, higher]);
    process.kill(worker).await;
    let process = bank.process();
    let worker = serve(&process).await.unwrap();
    let run = process.onward.by_key(WORK, "k").await.unwrap();
    let won = if let Combined::Join = combined { "plain transaction" } else { lower };
    assert_eq!(run.result().await.unwrap(), won);
    assert_eq!(seen.take(), expected, "on replay");
    assert_eq!(bank.notes(), ["transaction"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_transaction_waits_for_a_record_with_a_lower_number() {
    lower_number_is_delivered_first(First::Plain, Combined::Join).await;
}

#[tokio::test]
async fn a_record_waits_for_a_transaction_with_a_lower_number() {
    lower_number_is_delivered_first(First::Transaction, Combined::Join).await;
}

#[tokio::test]
async fn select_takes_the_record_with_the_lower_number() {
    lower_number_is_delivered_first(First::Plain, Combined::Select).await;
}

#[tokio::test]
async fn select_takes_the_transaction_with_the_lower_number() {
    lower_number_is_delivered_first(First::Transaction, Combined::Select).await;
}

#[tokio::test]
async fn a_number_whose_transaction_failed_is_a_gap() {
    let bank = Bank::open();
    let process = bank.process();
    let worker = process.onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        // It fails at the commit, after it has taken its number.
        let orphan = ctx.sqlite_transaction("orphan", |db, _| {
            insert(db, "bad")?;
            db.execute("insert into children values (7)", ())?;
            text("orphan")
        });
        let orphan = orphan.retry(Retry::fixed(Duration::from_millis(1)).tries(2));
        let (orphan, good) = tokio::join!(orphan, noting(&ctx, "good"));
        let orphan = orphan.unwrap_err();
        assert!(orphan.message.contains("FOREIGN KEY"), "{orphan}");
        Ok(format!("{} {}", good?, noting(&ctx, "last").await?))
    });
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    assert_eq!(run.result().await.unwrap(), "good last");
    assert_eq!(bank.notes(), ["good", "last"]);
    let history = run.history().await.unwrap();
    let failed = history.iter().filter(|record| matches!(record.entry, Entry::Failed(_))).count();
    assert_eq!((history.len(), failed), (4, 1), "{history:?}");
    assert!(history.last().unwrap().seq > 4, "numbers of failed transactions are gaps");
    worker.shutdown().await.unwrap();
}

/// Nobody polls a future that is put aside, and yet its transaction must not hold up the others
/// once it is answered.
#[tokio::test]
async fn a_transaction_put_aside_holds_up_nobody() {
    let bank = Arc::new(Bank::open());
    let process = bank.process();
    let with = (Arc::clone(&bank), Arc::clone(&process.store));
    let worker = process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let (bank, store) = with.clone();
        async move {
            let mut aside = ctx.sqlite_transaction("aside", move |db, _| {
                block_until(|| store.asked(Held::Records) > 0);
                insert(db, "aside")
            });
            let first = tokio::select! {
                aside = &mut aside => return aside,
                first = ctx.step("first", async |_| text("first")) => first?,
            };
            let run = ctx.run_id();
            let second = ctx.step("second", async |_| {
                bank.until_done(run, "aside").await;
                text("second")
            });
            Ok(format!("{first} {} {}", second.await?, aside.await?))
        }
    });
    process.store.hold(Held::Transactions);
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    bank.until_done(run.id(), "second").await;
    process.store.let_go(Held::Transactions);
    let result = tokio::time::timeout(Duration::from_secs(10), run.result()).await;
    assert_eq!(result.expect("the run goes on").unwrap(), "first second aside");
    assert_eq!(bank.ends(run.id()).await, ["first", "aside", "second"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_is_dropped_before_it_has_a_number_is_not_executed() {
    let bank = Bank::open();
    let process = bank.process();
    let store = Arc::clone(&process.store);
    let worker = process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let store = Arc::clone(&store);
        async move {
            let quick = ctx.step("quick", async |_| {
                until(|| store.asked(Held::TransactionsBefore) > 0).await;
                text("quick")
            });
            tokio::select! {
                lost = noting(&ctx, "lost") => return lost,
                quick = quick => quick?,
            };
            ctx.step("last", async |_| text("last")).await
        }
    });
    process.store.hold(Held::TransactionsBefore);
    let worker = worker.start().await.unwrap();
    let run = start(&process).await;
    assert_eq!(run.result().await.unwrap(), "last");
    process.store.let_go(Held::TransactionsBefore);
    worker.shutdown().await.unwrap();
    assert_eq!(process.store.asked(Held::TransactionsBefore), 1);
    assert_eq!(process.store.asked(Held::Transactions), 0);
    assert_eq!(bank.notes(), [""; 0]);
}

#[tokio::test]
async fn a_shutdown_waits_for_a_transaction() {
    let bank = Bank::open();
    let (process, seen) = (bank.process(), Seen::default());
    let serve = |process: &Process| {
        let seen = seen.clone();
        process.onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let seen = seen.clone();
            async move {
                let one = ctx.sqlite_transaction("one", move |db, _| {
                    seen.note("executing");
                    std::thread::sleep(Duration::from_millis(30));
                    insert(db, "one")
                });
                one.await
            }
        })
    };
    let worker = serve(&process).start().await.unwrap();
    start(&process).await;
    until(|| seen.has("executing")).await;
    worker.shutdown().await.unwrap();
    assert_eq!(bank.notes(), ["one"]);
    let process = bank.process();
    let worker = serve(&process).start().await.unwrap();
    let run = process.onward.by_key(WORK, "k").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "one");
    assert_eq!((seen.count("executing"), bank.notes()), (1, vec!["one".to_owned()]));
    worker.shutdown().await.unwrap();
}
