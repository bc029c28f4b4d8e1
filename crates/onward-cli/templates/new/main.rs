//! Opens the store, serves the workflow, starts a run, and prints its result.

mod order;

use onward::Onward;

use crate::order::{ORDER, Order};

#[tokio::main]
async fn main() -> Result<(), onward::Error> {
    // Or postgres://…, with the library's feature "postgres".
    let onward = Onward::open("sqlite:onward.db").await?;
    let worker = onward.worker().serve(ORDER, order::handle).start().await?;

    let order = Order { id: 7, cents: 4200 };
    // The same key is the same run: execute this program twice, and nobody is charged twice.
    let run = onward.start(ORDER, &order).key(format!("order-{}", order.id)).await?;
    println!("run {}", run.id());
    println!("{}", run.result().await?);

    worker.shutdown().await
}
