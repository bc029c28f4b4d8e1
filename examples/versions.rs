//! A deploy in the middle of a run: the old run keeps to its way, new runs take the new one.
//!
//! `cargo run -p onward --example versions`
//!
//! Two workers stand for two builds of one program. A run that began under the first goes on under the
//! second, which charges by another service and no longer prints a label.

use std::time::Duration;

use onward::{Ctx, Failure, Onward, RunHandle, RunState, Worker, Workflow};

const ORDER: Workflow<u64, String> = Workflow::named("order");

/// As it was written first.
async fn first(ctx: Ctx, cents: u64) -> Result<String, Failure> {
    ctx.step("print label", async |_| say("→ printing a label")).await?;
    let receipt = ctx.step("charge", async |_| charge("the old service", cents)).await?;
    ctx.signal::<()>("shipped").await?;
    ctx.step("mail", async |_| say(&format!("→ mailing {receipt}"))).await?;
    Ok(receipt)
}

/// As it is now. The label is gone: its record in old runs is left alone, and that is noted. How to
/// charge is decided by what the run has recorded.
async fn second(ctx: Ctx, cents: u64) -> Result<String, Failure> {
    let receipt = match ctx.version("charge by the new service", 1..=2).await? {
        1 => ctx.step("charge", async |_| charge("the old service", cents)).await?,
        _ => ctx.step("charge anew", async |_| charge("the new service", cents)).await?,
    };
    ctx.signal::<()>("shipped").await?;
    ctx.step("mail", async |_| say(&format!("→ mailing {receipt}"))).await?;
    Ok(receipt)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("memory:").await?;

    println!("build v1");
    let worker = serve(onward.worker().serve(ORDER, first).build("v1")).await?;
    let old = onward.start(ORDER, &4_200).key("order-1").await?;
    waits(&old).await?;
    worker.shutdown().await?;

    println!("build v2, after a deploy");
    let worker = serve(onward.worker().serve(ORDER, second).build("v2")).await?;
    let new = onward.start(ORDER, &4_200).key("order-2").await?;
    waits(&new).await?;
    old.signal("shipped", &()).await?;
    new.signal("shipped", &()).await?;
    println!("order 1: {}", old.result().await?);
    println!("order 2: {}", new.result().await?);

    for (name, run) in [("order 1", &old), ("order 2", &new)] {
        println!("{name}:");
        for record in run.history().await? {
            println!("  {}", record.step);
        }
        if let Some(change) = run.status().await?.code_change {
            println!("  not asked for by build {}: {}", change.build, change.unasked.join(", "));
        }
    }
    worker.shutdown().await?;
    Ok(())
}

/// A worker that frees the memory of runs that wait at once, so that this example need not wait.
async fn serve(worker: onward::WorkerBuilder) -> Result<Worker, onward::Error> {
    worker.linger(Duration::from_millis(1)).start().await
}

async fn waits(run: &RunHandle<String>) -> Result<(), onward::Error> {
    while run.status().await?.state != RunState::Waiting {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn charge(service: &str, cents: u64) -> Result<String, Failure> {
    println!("→ charging {cents} cents by {service}");
    Ok(format!("a receipt of {service}"))
}

fn say(text: &str) -> Result<(), Failure> {
    println!("{text}");
    Ok(())
}
