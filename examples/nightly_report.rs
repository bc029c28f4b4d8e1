//! A nightly report that no outage loses: at 03:00 in Berlin, and later if nobody was up by then.
//!
//! `cargo run -p onward --features schedules --example nightly_report`
//!
//! The clock of this example is moved by hand, so that nights pass at once. In a program of yours the
//! store is opened with `Onward::open("sqlite:onward.db")`, and everything else is the same.

use std::sync::Arc;
use std::time::Duration;

use onward::store::MemoryStore;
use onward::{CatchUp, Clock, Ctx, Failure, Onward, Overlap, TestClock, Timestamp, Workflow};

const NIGHTLY_REPORT: Workflow<String, String> = Workflow::named("nightly-report");

/// The night is the schedule's, not the clock's: a report that is late is still about its own night.
async fn nightly_report(ctx: Ctx, topic: String) -> Result<String, Failure> {
    let night = ctx.scheduled_at().unwrap_or_else(|| ctx.now());
    let rows = ctx.step("collect", async |_| collect(&topic, night).await).await?;
    ctx.step("send", async |step| send(step.id(), &topic, night, rows).await).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = TestClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    let onward = Onward::with_store(Arc::new(store));

    // A program does this whenever it begins: the same again changes nothing.
    let nightly = onward.schedule("nightly-report");
    nightly
        .clone()
        .cron("0 3 * * *")
        .time_zone("Europe/Berlin")
        .catch_up(CatchUp::All { max: 7 })
        .overlap(Overlap::Allow)
        .start(NIGHTLY_REPORT, &"sales".to_owned())
        .await?;
    for at in nightly.next(5).await? {
        println!("next at {at}");
    }

    println!("Three nights without a worker: a long weekend without power.");
    clock.advance(Duration::from_secs(3 * 24 * 60 * 60));

    let worker = onward.worker().serve(NIGHTLY_REPORT, nightly_report).start().await?;
    fired(&onward, &clock).await?;
    println!("And one night as it should be.");
    clock.advance(Duration::from_secs(24 * 60 * 60));
    fired(&onward, &clock).await?;

    for run in onward.list(onward::Query::default()).await?.runs.iter().rev() {
        println!("{}: {}", run.tags["scheduled_at"], onward.run(run.id).result().await?);
    }
    worker.shutdown().await?;
    Ok(())
}

/// Waits until the worker has fired what is due; only a clock that is moved by hand needs that.
async fn fired(onward: &Onward, clock: &TestClock) -> Result<(), onward::Error> {
    let nightly = onward.schedule("nightly-report");
    while nightly.status().await?.next_at.is_some_and(|next_at| next_at <= clock.now()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn collect(topic: &str, night: Timestamp) -> Result<u64, Failure> {
    println!("→ collecting {topic} up to {night}");
    Ok(42)
}

async fn send(key: &str, topic: &str, night: Timestamp, rows: u64) -> Result<String, Failure> {
    println!("→ sending under idempotency key {key:?}");
    Ok(format!("{rows} rows of {topic} up to {night}"))
}
