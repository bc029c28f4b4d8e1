//! The workflow that `onward dev --demo` keeps at work.
//!
//! Owns: orders that succeed, fail, wait for approval and come twice, so that every page has
//! something to show. Nothing outside this process is called.

use std::time::Duration;

use onward::{Ctx, Failure, Filter, Onward, Query, Retry, Worker, Workflow};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::problem::Problem;

const ORDER: Workflow<Order, String> = Workflow::named("demo-order");

/// What the key of an order begins with; its number follows.
const KEY: &str = "order-";

/// The pause between two orders.
const EVERY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    number: u64,
    cents: u64,
}

/// The orders at work.
pub(super) struct Orders {
    worker: Worker,
    starting: JoinHandle<()>,
}

impl Orders {
    pub(super) async fn begin(onward: &Onward) -> Result<Self, Problem> {
        let worker = onward.worker().queues(["demo"]).serve(ORDER, order).start().await?;
        let starting = tokio::spawn(start(onward.clone()));
        Ok(Self { worker, starting })
    }

    pub(super) async fn end(self) -> Result<(), Problem> {
        self.starting.abort();
        Ok(self.worker.shutdown().await?)
    }
}

async fn order(ctx: Ctx, order: Order) -> Result<String, Failure> {
    ctx.step("reserve stock", async |_| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, Failure>("reserved".to_owned())
    })
    .await?;
    if order.cents > 90_000 {
        let approved = ctx.signal::<bool>("approved").timeout(Duration::from_secs(120)).await?;
        if approved != Some(true) {
            return Err(Failure::fatal("nobody approved the order in time").code("not_approved"));
        }
    }
    let receipt = ctx
        .step("charge card", async |step| {
            tokio::time::sleep(Duration::from_millis(200)).await;
            match (order.number % 9, step.try_number()) {
                (4, _) => Err(Failure::fatal("the card was declined").code("card_declined")),
                (number, 1) if number % 3 == 0 => Err(Failure::from("the bank did not answer")),
                _ => Ok(format!("receipt-{}", order.number)),
            }
        })
        .retry(Retry::exponential(Duration::from_millis(500)).tries(4))
        .await?;
    ctx.sleep(Duration::from_secs(3)).await;
    ctx.step("ship", async |_| Ok::<_, Failure>(format!("shipped with {receipt}"))).await
}

/// Starts an order now and then; every third request comes twice, and now and then one comes with
/// another sum.
async fn start(onward: Onward) {
    let mut number = latest(&onward).await;
    loop {
        number += 1;
        let order = Order { number, cents: number * 7_919 % 100_000 };
        let times = if number.is_multiple_of(3) { 2 } else { 1 };
        for _ in 0..times {
            request(&onward, &order).await;
        }
        if number.is_multiple_of(7) {
            request(&onward, &Order { cents: order.cents + 1, ..order }).await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// The number of the latest order of an earlier demo: from there on there is something new to see.
async fn latest(onward: &Onward) -> u64 {
    let filter = Filter { workflow: Some(ORDER.name().to_owned()), ..Filter::default() };
    let newest = onward.list(Query { filter, limit: 1, ..Query::default() }).await;
    let key = newest.ok().and_then(|page| page.runs.into_iter().next()?.key);
    key.and_then(|key| key.strip_prefix(KEY)?.parse().ok()).unwrap_or(0)
}

async fn request(onward: &Onward, order: &Order) {
    let start = onward.start(ORDER, order).queue("demo").key(format!("{KEY}{}", order.number));
    if let Err(error) = start.caller("dev --demo").await {
        tracing::debug!(%error, "an order was refused");
    }
}
