//! An order as a saga: reserve, charge, ship; and each is taken back when a later one fails.
//!
//! `cargo run -p onward --example order_saga`
//!
//! Two orders. The first is shipped. The second cannot be, so it turns back: the money is sent back,
//! then the goods go back to the shelf, each as a step that is recorded. The bank is busy at the first
//! refund, so that is tried again. Stop the program wherever you like and start it again: it goes on where it
//! stopped, on the way back too. The database is `onward-saga.db` in the current folder; to start over,
//! `rm -r onward-saga.db*`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, Retry, Undoing, Workflow};
use serde::{Deserialize, Serialize};

const ORDER: Workflow<Order, String> = Workflow::named("order");

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    id: u64,
    article: String,
    cents: u64,
    address: String,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    payment: String,
    cents: u64,
}

async fn order(ctx: Ctx, order: Order) -> Result<String, Failure> {
    let of = order.id;
    ctx.on_cancel(move |step| async move { tell_customer(step.id(), of).await });

    let shelf = ctx
        .step("reserve", async |step| reserve(step.id(), &order.article).await)
        .undo(async |shelf: String, step| put_back(step.id(), &shelf).await)
        .await?;
    ctx.step("charge", async |step| charge(step.id(), &order).await)
        .undo(async |receipt: Receipt, step| refund(step.id(), &receipt).await)
        .undo_retry(Retry::exponential(Duration::from_millis(200)).tries(8))
        .await?;
    // Nothing follows it, so it needs no undo.
    ctx.step("ship", async |step| ship(step.id(), &shelf, &order.address).await).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("sqlite:onward-saga.db").await?;
    let worker = onward.worker().serve(ORDER, order).start().await?;

    for (id, address) in [(7, "1 Saint James's Square"), (8, "")] {
        let article = "difference engine".to_owned();
        let order = Order { id, article, cents: 420_000, address: address.to_owned() };
        let run = onward.start(ORDER, &order).key(format!("order-{id}")).await?;
        match run.result().await {
            Ok(parcel) => println!("order {id}: {parcel}"),
            Err(error) => println!("order {id}: {error}"),
        }
        if let Some(undoing) = Undoing::of(&run.history().await?) {
            println!("  undone: {:?}, left: {:?}", undoing.undone, undoing.left);
        }
    }
    println!("Again, and nothing is done twice. To start over: rm -r onward-saga.db*");
    worker.shutdown().await?;
    Ok(())
}

async fn reserve(key: &str, article: &str) -> Result<String, Failure> {
    println!("→ reserving a {article} ({key})");
    Ok("shelf 12".to_owned())
}

async fn put_back(key: &str, shelf: &str) -> Result<(), Failure> {
    println!("← putting it back to {shelf} ({key})");
    Ok(())
}

async fn charge(key: &str, order: &Order) -> Result<Receipt, Failure> {
    println!("→ charging {} cents ({key})", order.cents);
    Ok(Receipt { payment: format!("payment-{}", order.id), cents: order.cents })
}

/// A bank that is busy at the first call.
async fn refund(key: &str, receipt: &Receipt) -> Result<(), Failure> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    println!("← sending back {} cents of {} ({key})", receipt.cents, receipt.payment);
    match CALLS.fetch_add(1, Ordering::SeqCst) {
        0 => Err(Failure::new("the bank is busy")),
        _ => Ok(()),
    }
}

async fn ship(key: &str, shelf: &str, address: &str) -> Result<String, Failure> {
    println!("→ shipping from {shelf} ({key})");
    if address.is_empty() {
        return Err(Failure::fatal("there is no address").code("no_address"));
    }
    Ok(format!("on its way to {address}"))
}

async fn tell_customer(key: &str, order: u64) -> Result<(), Failure> {
    println!("← telling the customer that order {order} is cancelled ({key})");
    Ok(())
}
