//! Steering runs that are under way: pausing them, seeing how far they are, forking one.
//!
//! `cargo run -p onward --example steer`

use std::time::Duration;

use onward::{Ctx, Failure, Filter, Onward, Workflow};

const IMPORT: Workflow<u64, u64> = Workflow::named("import");

/// Says how far it is, what it does, and for whom.
async fn import(ctx: Ctx, rows: u64) -> Result<u64, Failure> {
    ctx.set_tag("size", if rows > 3 { "large" } else { "small" })?;
    for row in 0..rows {
        ctx.progress(row, rows);
        ctx.step("load row", async |step| {
            step.log(format!("row {row}"));
            tokio::time::sleep(Duration::from_millis(40)).await;
            Ok::<_, Failure>(row)
        })
        .await?;
    }
    ctx.log("all rows are loaded");
    ctx.step("publish", async |_| Ok::<_, Failure>(rows)).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("memory:").await?;
    let worker = onward.worker().serve(IMPORT, import).start().await?;
    let run = onward.start(IMPORT, &5).await?;
    onward.start(IMPORT, &2).await?;

    // Something is wrong with the database: everything that is under way is paused. The row that is
    // being loaded is loaded and recorded; the next one does not begin.
    let imports = || Filter { workflow: Some("import".to_owned()), ..Filter::default() };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let paused = onward.matching(imports()).pause().await?;
    println!("paused {} of {}", paused.done, paused.matched);
    while run.status().await?.worker.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{}", run.why().await?);
    println!("{} rows are loaded", run.history().await?.len());

    onward.matching(imports()).resume().await?;
    println!("imported {} rows", run.result().await?);
    let large = [("size".to_owned(), "large".to_owned())].into();
    let found = onward.list(onward::Query {
        filter: Filter { tags: large, ..Filter::default() },
        ..onward::Query::default()
    });
    println!("large imports: {}", found.await?.runs.len());
    for line in run.log().await? {
        println!("  {} {}", line.step.as_deref().unwrap_or("-"), line.text);
    }

    // Publishing went wrong in a way that only people see: once more from there, nothing before.
    let again = run.fork("publish").await?;
    again.result().await?;
    println!("forked from {:?}", again.status().await?.forked_from);
    worker.shutdown().await?;
    Ok(())
}
