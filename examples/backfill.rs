//! A backfill that is interrupted and done again.
//!
//! `cargo run -p onward --example backfill`
//!
//! `start_many` takes an iterator of any length and starts its runs in batches. With a key for each
//! item, doing it again finds what was started and starts the rest: so the way to go on after an
//! interruption is to say the same thing once more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, RunState, StartMany, Workflow};
use tokio::sync::watch;

const THUMBNAIL: Workflow<u64, String> = Workflow::named("thumbnail");
const PICTURES: u64 = 3_000;

async fn thumbnail(ctx: Ctx, picture: u64) -> Result<String, Failure> {
    ctx.step("make thumbnail", async |_| make_thumbnail(picture).await).await
}

/// The backfill, as it is said the first time and every other time.
fn backfill(onward: &Onward) -> StartMany<u64> {
    onward
        .start_many(THUMBNAIL, 0..PICTURES)
        .key(|picture| format!("thumbnail-{picture}"))
        .priority(-10) // behind the daily work
        .tag("backfill", "2026-03")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let onward =
        Onward::open(&format!("sqlite:{}", dir.path().join("onward.db").display())).await?;

    // The first time, somebody closes the laptop after a thousand items.
    let (tell, mut told) = watch::channel(0);
    let counted = backfill(&onward).on_progress(move |progress| {
        let _ = tell.send(progress.items);
    });
    tokio::select! {
        done = counted => println!("not interrupted: {:?}", done?),
        items = told.wait_for(|items| *items >= 1_000) => println!("interrupted after {}", *items?),
    }

    // The second time it is left alone, while a worker is at work already. What is there by now may
    // be more than was known of: a batch was under way.
    let worker = onward.worker().serve(THUMBNAIL, thumbnail).start().await?;
    let done = backfill(&onward).await?;
    println!(
        "again: {} were there, {} are new, {} refused",
        done.existing, done.started, done.refused
    );

    while onward.stats().await?.runs.get(&RunState::Completed) != Some(&PICTURES) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{PICTURES} pictures, {} thumbnails made", MADE.load(Ordering::SeqCst));

    let done = backfill(&onward).await?;
    println!("a third time: {} were there, {} are new", done.existing, done.started);
    worker.shutdown().await?;
    Ok(())
}

static MADE: AtomicU64 = AtomicU64::new(0);

async fn make_thumbnail(picture: u64) -> Result<String, Failure> {
    MADE.fetch_add(1, Ordering::SeqCst);
    Ok(format!("thumbnails/{picture}.webp"))
}
