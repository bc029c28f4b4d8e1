//! A client of an API that allows so many calls a second, used by many customers fairly.
//!
//! `cargo run -p onward --example rate_limited_client`
//!
//! The API takes 20 calls a second and no more than 4 at once, and one call at a time of each customer.
//! One customer has sixty calls waiting; the other two are served all the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Workflow};

const CALL: Workflow<Call, u64> = Workflow::named("call-api");

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Call {
    customer: String,
    number: u64,
}

/// One call. The step's id is what the API knows a repeated call by.
async fn call_api(ctx: Ctx, call: Call) -> Result<u64, Failure> {
    ctx.step("call", async |step| request(step.id(), &call).await).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("memory:").await?; // "sqlite:onward.db", or "postgres://…" for many machines

    // A program does this whenever it begins: the same again changes nothing. `onward queues set api`
    // changes it while programs work.
    onward.queue("api").rate(20, Duration::from_secs(1)).concurrency(4).per_lane(1).save().await?;

    let worker = onward.worker().queues(["api"]).serve(CALL, call_api).start().await?;
    let mut runs = Vec::new();
    for (customer, calls) in [("acme", 60), ("bolt", 5), ("coop", 5)] {
        for number in 0..calls {
            let call = Call { customer: customer.to_owned(), number };
            let key = format!("{customer}-{number}");
            runs.push(onward.start(CALL, &call).queue("api").lane(customer).key(key).await?);
        }
    }

    let begun = Instant::now();
    let last: Mutex<BTreeMap<String, Duration>> = Mutex::default();
    let last = Arc::new(last);
    let mut waiting = tokio::task::JoinSet::new();
    for run in runs {
        let last = Arc::clone(&last);
        waiting.spawn(async move {
            let customer = run.status().await?.lane.unwrap_or_default();
            run.result().await?;
            if let Ok(mut last) = last.lock() {
                last.insert(customer, begun.elapsed());
            }
            Ok::<_, onward::Error>(())
        });
    }
    while let Some(ended) = waiting.join_next().await {
        ended??;
    }
    if let Ok(last) = last.lock() {
        for (customer, after) in last.iter() {
            println!("{customer} was done after {:.1} s", after.as_secs_f64());
        }
    }
    worker.shutdown().await?;
    Ok(())
}

/// Stands for an HTTP request.
async fn request(idempotency_key: &str, call: &Call) -> Result<u64, Failure> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    println!("→ {} {} ({idempotency_key})", call.customer, call.number);
    Ok(call.number)
}
