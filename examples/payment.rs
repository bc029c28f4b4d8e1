//! A payment that is made once, although its answer gets lost.
//!
//! `cargo run -p onward --example payment`
//!
//! The step's id is the same over tries, crashes and machines. Handed on as the idempotency key, it
//! lets the payment service see that a request is the same one again. This service says so with 409
//! and that is success: an earlier try got through, only its answer did not.

use std::collections::BTreeMap;
use std::time::Duration;

use onward::{Ctx, Failure, Onward, Retry, Workflow};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

const PAY: Workflow<Order, Receipt> = Workflow::named("pay");

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    card: String,
    cents: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Receipt {
    charge: String,
    cents: u64,
}

async fn pay(ctx: Ctx, order: Order) -> Result<Receipt, Failure> {
    let charge = ctx.step("charge", async |step| {
        match post_charge(step.id(), &order.card, order.cents).await? {
            201 | 409 => find_charge(step.id()).await,
            402 => Err(Failure::fatal("the bank said no").code("card_declined")),
            429 => Err(Failure::retry_after(Duration::from_millis(200), "too many requests")),
            status => Err(Failure::new(format!("the payment service answered {status}"))),
        }
    });
    let soon = Retry::exponential(Duration::from_millis(50)).tries(6);
    let receipt = charge.retry(soon).timeout(Duration::from_secs(30)).await?;
    ctx.step("mail the receipt", async |step| mail(step.id(), &receipt).await).await?;
    Ok(receipt)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("memory:").await?;
    let worker = onward.worker().serve(PAY, pay).start().await?;

    let order = Order { id: 7, card: "4242".to_owned(), cents: 4_200 };
    let run = onward.start(PAY, &order).key(format!("order-{}", order.id)).await?;
    println!("order 7: {:?}", run.result().await?);

    // The customer presses the button again: the same key is the same run.
    let again = onward.start(PAY, &order).key(format!("order-{}", order.id)).await?;
    println!("order 7, pressed again: {:?}", again.result().await?);

    let broke = Order { id: 8, card: "0002".to_owned(), cents: 990 };
    let run = onward.start(PAY, &broke).key("order-8").await?;
    let declined = |error: &onward::Error| error.failure().is_some_and(|f| f.is("card_declined"));
    match run.result().await {
        Err(error) if declined(&error) => println!("order 8: ask for another card"),
        other => println!("order 8: {other:?}"),
    }

    let charges = CHARGES.lock().await;
    println!("charges made: {}, of {} cents in all", charges.len(), total(&charges));
    worker.shutdown().await?;
    Ok(())
}

/// The payment service: what it has charged, by idempotency key.
static CHARGES: Mutex<BTreeMap<String, Receipt>> = Mutex::const_new(BTreeMap::new());

/// `POST /charges`. The answer to the first request gets lost on its way.
async fn post_charge(key: &str, card: &str, cents: u64) -> Result<u16, std::io::Error> {
    println!("→ POST /charges, Idempotency-Key: {key}");
    let mut charges = CHARGES.lock().await;
    if charges.contains_key(key) {
        println!("← 409, this key was charged");
        return Ok(409);
    }
    if card == "0002" {
        println!("← 402");
        return Ok(402);
    }
    let receipt = Receipt { charge: format!("ch_{}", charges.len() + 1), cents };
    charges.insert(key.to_owned(), receipt);
    println!("← connection reset; nobody knows whether it was charged");
    Err(std::io::ErrorKind::ConnectionReset.into())
}

/// `GET /charges?key=…`
async fn find_charge(key: &str) -> Result<Receipt, Failure> {
    let charges = CHARGES.lock().await;
    charges.get(key).cloned().ok_or_else(|| Failure::new("no charge under this key yet"))
}

async fn mail(key: &str, receipt: &Receipt) -> Result<(), Failure> {
    println!("→ mailing the receipt of {} under key {key}", receipt.charge);
    Ok(())
}

fn total(charges: &BTreeMap<String, Receipt>) -> u64 {
    charges.values().map(|receipt| receipt.cents).sum()
}
