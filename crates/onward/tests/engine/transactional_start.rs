//! Starting a run inside a transaction of the user's own: both or neither.

use std::time::Duration;

use onward::rusqlite::{Connection, TransactionBehavior};
use onward::{Code, Ctx, Failure, OnConflict, Onward, Query, RunState, Workflow};

use crate::bank::Bank;

const SHIP: Workflow<u32, String> = Workflow::named("ship");

async fn ship(ctx: Ctx, order: u32) -> Result<String, Failure> {
    ctx.step("ship", async |_| Ok::<_, Failure>(format!("shipped {order}"))).await
}

async fn runs(onward: &Onward) -> usize {
    onward.list(Query::default()).await.unwrap().runs.len()
}

#[tokio::test]
async fn what_is_rolled_back_was_never_started() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let mut db = bank.db();
    let tx = db.transaction().unwrap();
    tx.execute("insert into notes values ('order')", ()).unwrap();
    let run = onward.start(SHIP, &1).key("order-1").in_sqlite(&tx).unwrap();
    drop(tx);
    assert_eq!(run.status().await.unwrap_err().code(), Code::RunNotFound);
    assert_eq!((runs(&onward).await, bank.notes()), (0, Vec::new()));
    // The key is free, for another input too.
    onward.start(SHIP, &2).key("order-1").await.unwrap();
}

#[tokio::test]
async fn what_is_committed_is_executed() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let worker = onward.worker().serve(SHIP, ship).start().await.unwrap();
    let mut db = bank.db();
    let tx = db.transaction().unwrap();
    tx.execute("insert into notes values ('order')", ()).unwrap();
    let run = onward.start(SHIP, &1).key("order-1").tag("shop", "north").in_sqlite(&tx).unwrap();
    assert_eq!(runs(&onward).await, 0, "nothing is there before the commit");
    tx.commit().unwrap();
    assert_eq!(run.result().await.unwrap(), "shipped 1");
    assert_eq!(bank.notes(), ["order"]);
    assert_eq!(run.status().await.unwrap().tags["shop"], "north");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_key_means_what_it_means_for_any_start() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let first = onward.start(SHIP, &1).key("order-1").await.unwrap();
    let mut db = bank.db();
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let again = onward.start(SHIP, &1).key("order-1").in_sqlite(&tx).unwrap();
    assert_eq!(again.id(), first.id());
    let refused = onward.start(SHIP, &2).key("order-1").in_sqlite(&tx).unwrap_err();
    assert_eq!((refused.code(), refused.run()), (Code::KeyConflict, Some(first.id())));
    assert!(refused.to_string().contains("order-1"), "{refused}");
    let taken = onward.start(SHIP, &1).key("order-1").on_conflict(OnConflict::Reject);
    assert_eq!(taken.in_sqlite(&tx).unwrap_err().code(), Code::KeyTaken);
    // A start that is refused leaves the user's transaction as it was.
    tx.execute("insert into notes values ('order')", ()).unwrap();
    tx.commit().unwrap();
    assert_eq!((runs(&onward).await, bank.notes()), (1, vec!["order".to_owned()]));
    assert_eq!(first.duplicates().await.unwrap().count, 3);
}

#[tokio::test]
async fn a_run_that_replaces_another_waits_for_the_commit() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let first = onward.start(SHIP, &1).key("order-1").await.unwrap();
    let mut db = bank.db();
    let tx = db.transaction().unwrap();
    let start = onward.start(SHIP, &2).key("order-1").on_conflict(OnConflict::Replace);
    let second = start.in_sqlite(&tx).unwrap();
    assert_eq!(first.status().await.unwrap().state, RunState::Queued);
    tx.commit().unwrap();
    assert_eq!(first.status().await.unwrap().state, RunState::Cancelled);
    assert_eq!(second.status().await.unwrap().state, RunState::Queued);
}

#[tokio::test]
async fn a_connection_that_will_not_do_is_refused() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let start = || onward.start(SHIP, &1);
    let mut db = bank.db();
    assert_eq!(start().in_sqlite(&db).unwrap_err().code(), Code::NoTransaction);
    let other = Bank::open();
    let mut elsewhere = other.db();
    let tx = elsewhere.transaction().unwrap();
    assert_eq!(start().in_sqlite(&tx).unwrap_err().code(), Code::OtherDatabase);
    let mut memory = Connection::open_in_memory().unwrap();
    let tx = memory.transaction().unwrap();
    assert_eq!(start().in_sqlite(&tx).unwrap_err().code(), Code::OtherDatabase);
    let tx = db.transaction().unwrap();
    let no_file = Onward::open("memory:").await.unwrap();
    let refused = no_file.start(SHIP, &1).in_sqlite(&tx).unwrap_err();
    assert_eq!(refused.code(), Code::TransactionUnsupported);
    let nameless = onward.start(SHIP, &1).key("").in_sqlite(&tx).unwrap_err();
    assert_eq!(nameless.code(), Code::InvalidName);
    // Another schema than this program's.
    tx.execute("update onward_schema set version = 99", ()).unwrap();
    assert_eq!(start().in_sqlite(&tx).unwrap_err().code(), Code::OtherDatabase);
    drop(tx);
    assert_eq!(runs(&onward).await, 0);
}

#[tokio::test]
async fn a_locked_file_is_said_to_be_locked() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let (mut db, mut holder) = (bank.db(), bank.db());
    db.busy_timeout(Duration::ZERO).unwrap();
    let held = holder.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let tx = db.transaction().unwrap();
    let refused = onward.start(SHIP, &1).key("order-1").in_sqlite(&tx).unwrap_err();
    assert_eq!(refused.code(), Code::StoreLocked);
    drop(held);
    let run = onward.start(SHIP, &1).key("order-1").in_sqlite(&tx).unwrap();
    tx.commit().unwrap();
    assert_eq!(run.status().await.unwrap().state, RunState::Queued);
}

/// SQLite lets a transaction that has read wait for no lock, so the start must not read first.
#[tokio::test]
async fn a_start_waits_for_another_programs_write() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let (mut db, holder) = (bank.db(), bank.db());
    holder.execute_batch("begin immediate; insert into notes values ('theirs')").unwrap();
    let tx = db.transaction().unwrap();
    let holding = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        holder.execute_batch("commit").unwrap();
    });
    let run = onward.start(SHIP, &1).key("order-1").in_sqlite(&tx).unwrap();
    tx.commit().unwrap();
    holding.join().unwrap();
    assert_eq!(run.status().await.unwrap().state, RunState::Queued);
}

#[tokio::test]
async fn a_start_behind_a_read_that_is_old_says_how_to_begin() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let mut db = bank.db();
    let tx = db.transaction().unwrap();
    tx.query_row("select count(*) from notes", (), |row| row.get::<_, i64>(0)).unwrap();
    bank.db().execute("insert into notes values ('theirs')", ()).unwrap();
    let refused = onward.start(SHIP, &1).in_sqlite(&tx).unwrap_err();
    assert_eq!(refused.code(), Code::StoreLocked);
    assert!(refused.to_string().contains("begin immediate"), "{refused}");
    let refused = onward.run(onward::RunId::new()).signal("paid", &1).in_sqlite(&tx).unwrap_err();
    assert!(refused.to_string().contains("begin immediate"), "{refused}");
}

const ORDER: Workflow<u32, String> = Workflow::named("order");

/// A transactional step may start runs in its own transaction, and they start once.
#[tokio::test]
async fn a_body_may_start_runs_in_its_transaction() {
    let bank = Bank::open();
    let onward = bank.process().onward;
    let client = onward.clone();
    let worker = onward.worker().serve(SHIP, ship).serve(ORDER, move |ctx: Ctx, order: u32| {
        let client = client.clone();
        async move {
            let placed = ctx.sqlite_transaction("place", move |db, step| {
                db.execute("insert into notes values ('order')", ())?;
                let run = client.start(SHIP, &order).in_sqlite(db)?;
                if step.try_number() < 3 {
                    return Err(Failure::retry_after(Duration::from_millis(1), "not yet"));
                }
                Ok(run.id().to_string())
            });
            placed.await
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(ORDER, &7).await.unwrap().result().await.unwrap();
    let shipped = onward.run(run.parse().unwrap()).of_type::<String>();
    assert_eq!(shipped.result().await.unwrap(), "shipped 7");
    assert_eq!((runs(&onward).await, bank.notes()), (2, vec!["order".to_owned()]));
    worker.shutdown().await.unwrap();
}
