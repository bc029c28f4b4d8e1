//! A page that is edited all the time is indexed once it is left alone; a report is made once an hour.
//!
//! `cargo run -p onward --example debounce`
//!
//! Starts with one key that come soon after one another become one run: with `debounce` the last input
//! wins, with `throttle` the first. Both hold over all processes that start, since the store decides.

use std::time::Duration;

use onward::{Ctx, Failure, Onward, Workflow};

const REINDEX: Workflow<String, String> = Workflow::named("reindex");
const REPORT: Workflow<String, String> = Workflow::named("report");

async fn reindex(ctx: Ctx, text: String) -> Result<String, Failure> {
    ctx.step("index", async |_| Ok::<_, Failure>(format!("indexed {text:?}"))).await
}

async fn report(ctx: Ctx, asked_by: String) -> Result<String, Failure> {
    ctx.step("make", async |_| Ok::<_, Failure>(format!("the report that {asked_by} asked for")))
        .await
}

/// What the editor calls at every key stroke.
async fn edited(onward: &Onward, text: &str) -> Result<onward::RunHandle<String>, onward::Error> {
    onward
        .start(REINDEX, &text.to_owned())
        .key("page-7")
        .debounce(Duration::from_millis(300)) // so long must the page be left alone
        .debounce_max(Duration::from_secs(5)) // but somebody who never stops is indexed too
        .await
}

#[tokio::main]
async fn main() -> Result<(), onward::Error> {
    let onward = Onward::open("memory:").await?;
    let worker = onward.worker().serve(REINDEX, reindex).serve(REPORT, report).start().await?;

    let first = edited(&onward, "O").await?;
    for text in ["On", "Onw", "Onwa", "Onwar"] {
        edited(&onward, text).await?;
    }
    let last = edited(&onward, "Onward").await?;
    println!("one run for six edits: {}", first.id() == last.id());
    println!("{}", last.result().await?);
    println!("edits that became part of it: {}", last.duplicates().await?.count);

    // It has begun, and ended: the next edit makes another run.
    let next = edited(&onward, "Onward!").await?;
    println!("another run: {}, {}", next.id() != last.id(), next.result().await?);

    // Whoever asks within the hour gets the report that is being made.
    let hour = Duration::from_secs(60 * 60);
    let mut reports = Vec::new();
    for who in ["Ada", "Grace", "Mary"] {
        reports.push(onward.start(REPORT, &who.to_owned()).key("report").throttle(hour).await?);
    }
    for report in &reports {
        println!("{}", report.result().await?);
    }
    println!("one report: {}", reports.iter().all(|report| report.id() == reports[0].id()));
    worker.shutdown().await
}
