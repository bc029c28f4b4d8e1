//! Indexing an attachment: find the customer, read the document, update the search index.
//!
//! `cargo run -p onward --example index_attachment`
//!
//! Three awaits, each a step. Stop the program wherever you like and start it again: steps that
//! finished stay finished, and the key makes the second start find the first run. The database is
//! `onward-example.db` in the current folder; to start over, `rm -r onward-example.db*`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, Retry, Workflow};
use serde::{Deserialize, Serialize};

/// What clients and workers share: a name, and the types of input and output.
const INDEX_ATTACHMENT: Workflow<Attachment, Indexed> = Workflow::named("index-attachment");

#[derive(Serialize, Deserialize)]
struct Attachment {
    id: u64,
    channel: String,
    file: String,
}

#[derive(Serialize, Deserialize)]
struct Customer {
    name: String,
    premium: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Indexed {
    status: String,
}

impl Indexed {
    fn skipped() -> Self {
        Self { status: "skipped: not a premium customer".to_owned() }
    }

    fn done(status: String) -> Self {
        Self { status }
    }
}

async fn index_attachment(ctx: Ctx, file: Attachment) -> Result<Indexed, Failure> {
    let customer = ctx.step("find customer", async |_| find_customer(&file.channel).await).await?;
    if !customer.premium {
        return Ok(Indexed::skipped());
    }
    let text = ctx
        .step("ocr", async |_| run_ocr(&file).await)
        .retry(Retry::exponential(Duration::from_millis(200)).tries(8))
        .timeout(Duration::from_secs(30))
        .await?;
    // The step's id is the same over all tries and crashes: the other side dedupes on it.
    let status = ctx
        .step("update index", async |step| update_search_index(step.id(), &file, &text).await)
        .await?;
    Ok(Indexed::done(status))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("sqlite:onward-example.db").await?;
    let worker = onward.worker().serve(INDEX_ATTACHMENT, index_attachment).start().await?;

    let file = Attachment { id: 7, channel: "#invoices".to_owned(), file: "may.pdf".to_owned() };
    let run = onward.start(INDEX_ATTACHMENT, &file).key(format!("attachment-{}", file.id)).await?;
    let indexed = run.result().await?;

    println!("run {}: {}", run.id(), indexed.status);
    for record in run.history().await? {
        println!("  {:<14} try {}  {}", record.step, record.try_number, record.entry.kind());
    }
    println!("Again, and nothing is done twice: its key is kept in onward-example.db, here.");
    println!("To start over: rm -r onward-example.db*");
    worker.shutdown().await?;
    Ok(())
}

async fn find_customer(channel: &str) -> Result<Customer, Failure> {
    println!("→ looking up the customer of {channel}");
    Ok(Customer { name: "Analytical Engines".to_owned(), premium: true })
}

/// A service that is down for the first two calls.
async fn run_ocr(file: &Attachment) -> Result<String, Failure> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    println!("→ reading {}", file.file);
    match CALLS.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Err(Failure::new("the OCR service is overloaded")),
        _ => Ok(format!("the text of {}", file.file)),
    }
}

async fn update_search_index(key: &str, file: &Attachment, text: &str) -> Result<String, Failure> {
    println!("→ indexing attachment {} under idempotency key {key:?}", file.id);
    Ok(format!("indexed {} characters", text.len()))
}
