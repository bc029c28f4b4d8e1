//! Money that moves once: your tables and the workflow's records in one commit.
//!
//! `cargo run -p onward --example transfer`
//!
//! The accounts are in the store's own SQLite file. A transactional step commits what it writes there
//! together with its record, so no crash falls between them. The other way round, a run is started,
//! and a signal sent, inside a transaction of the program's own.

use onward::rusqlite::{Connection, Transaction};
use onward::{Ctx, Failure, Onward, RunHandle, Workflow};
use serde::{Deserialize, Serialize};

const TRANSFER: Workflow<Transfer, i64> = Workflow::named("transfer");

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Transfer {
    from: u32,
    to: u32,
    cents: i64,
}

async fn transfer(ctx: Ctx, order: Transfer) -> Result<i64, Failure> {
    // Large ones wait until somebody has confirmed them.
    if order.cents >= 10_000 {
        ctx.signal::<()>("confirmed").await?;
    }
    let moved = ctx.sqlite_transaction("move the money", move |db, _step| {
        let add = "update accounts set cents = cents + ?1 where id = ?2 returning cents";
        let left: i64 = db.query_row(add, (-order.cents, order.from), |row| row.get(0))?;
        if left < 0 {
            // An error undoes what the body wrote.
            return Err(Failure::fatal("too little money").code("overdrawn"));
        }
        db.query_row(add, (order.cents, order.to), |_| Ok(()))?;
        Ok(left)
    });
    moved.await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("bank.db");
    let mut db = Connection::open(&file)?;
    db.execute_batch(
        "create table accounts (id integer primary key, cents integer not null);
         insert into accounts values (1, 50000), (2, 0);
         create table orders (id integer primary key, transfer text not null);
         create table confirmations (run text not null)",
    )?;
    let onward = Onward::open(&format!("sqlite:{}", file.display())).await?;
    let worker = onward.worker().serve(TRANSFER, transfer).start().await?;

    // The order and its run: both or neither.
    let tx = db.transaction()?;
    let run = order(&onward, &tx, Transfer { from: 1, to: 2, cents: 2_500 })?;
    tx.commit()?;
    println!("moved; account 1 has {} cents left", run.result().await?);

    let tx = db.transaction()?;
    let never = order(&onward, &tx, Transfer { from: 1, to: 2, cents: 99 })?;
    tx.rollback()?;
    println!("rolled back: {}", never.status().await.is_err());

    // The confirmation and its signal: both or neither.
    let tx = db.transaction()?;
    let large = order(&onward, &tx, Transfer { from: 1, to: 2, cents: 30_000 })?;
    tx.commit()?;
    let tx = db.transaction()?;
    tx.execute("insert into confirmations values (?1)", [large.id().to_string()])?;
    large.signal("confirmed", &()).key("confirmation-1").in_sqlite(&tx)?;
    tx.commit()?;
    println!("confirmed and moved; account 1 has {} cents left", large.result().await?);

    // Too much: the run fails, and nothing was moved.
    let too_much = Transfer { from: 1, to: 2, cents: 9_999 };
    for _ in 0..2 {
        let tx = db.transaction()?;
        let run = order(&onward, &tx, too_much)?;
        tx.commit()?;
        match run.result().await {
            Ok(left) => println!("moved; account 1 has {left} cents left"),
            Err(error) => println!("not moved: {error}"),
        }
    }
    let all: i64 = db.query_row("select sum(cents) from accounts", (), |row| row.get(0))?;
    println!("in all accounts: {all} cents");
    worker.shutdown().await?;
    Ok(())
}

/// Writes an order down and starts its run, in the caller's transaction.
fn order(
    onward: &Onward,
    tx: &Transaction<'_>,
    transfer: Transfer,
) -> Result<RunHandle<i64>, Box<dyn std::error::Error>> {
    let text = format!("{} to {}: {}", transfer.from, transfer.to, transfer.cents);
    tx.execute("insert into orders (transfer) values (?1)", [text])?;
    let key = format!("order-{}", tx.last_insert_rowid());
    Ok(onward.start(TRANSFER, &transfer).key(key).in_sqlite(tx)?)
}
