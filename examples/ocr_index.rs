//! OCR and a search index, with a backfill over documents of which some are half done.
//!
//! `cargo run -p onward --example ocr_index`
//!
//! OCR is slow and costs money; the index is cheap. Both steps have keys, which hold over all runs and
//! workflows: whoever comes second is given the result. So the uploads of today and the backfill over
//! everything meet without paying twice, and without asking each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onward::{Ctx, Failure, Key, Onward, Workflow};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

const UPLOAD: Workflow<Document, u64> = Workflow::named("index-upload");
const BACKFILL: Workflow<Document, u64> = Workflow::named("index-backfill");

#[derive(Clone, Serialize, Deserialize)]
struct Document {
    id: u64,
    /// The version of the file: a new version is new work.
    version: u64,
}

/// One function for both workflows.
async fn index(ctx: Ctx, document: Document) -> Result<u64, Failure> {
    let (id, version) = (document.id.to_string(), document.version.to_string());
    let text = ctx
        .step("ocr", async |step| ocr(step.id(), &document).await)
        .key(Key::of(["ocr", &id, &version]))
        .await?;
    ctx.step("update index", async |step| update_index(step.id(), &document, &text).await)
        .key(Key::of(["index", &id, &version]))
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("memory:").await?;
    let worker = onward.worker().serve(UPLOAD, index).serve(BACKFILL, index).start().await?;

    // Documents 0 to 39 were uploaded. The index was down for some: OCR is paid for and kept.
    INDEX_IS_DOWN.store(true, Ordering::SeqCst);
    let (mut indexed, mut half_done) = (0, 0);
    for id in 0..40 {
        let document = Document { id, version: 1 };
        let run = onward.start(UPLOAD, &document).key(format!("upload-{id}-1")).await?;
        match run.result().await {
            Ok(_) => indexed += 1,
            Err(_) => half_done += 1,
        }
    }
    println!("uploads: {indexed} indexed, {half_done} half done, {} pages read", paid());

    // The backfill goes over all of them, and sixty that nobody ever looked at.
    INDEX_IS_DOWN.store(false, Ordering::SeqCst);
    let all = (0..100).map(|id| Document { id, version: 1 });
    let started = onward
        .start_many(BACKFILL, all)
        .key(|document| format!("backfill-2026-03-{}", document.id))
        .priority(-10) // behind the uploads of today
        .await?;
    for id in 0..100 {
        onward.by_key(BACKFILL, format!("backfill-2026-03-{id}")).await?.result().await?;
    }
    println!("backfill: {} documents, {} pages read in all", started.started, paid());
    println!("the index has {} documents", INDEX.lock().await.len());

    // A new version of a document is new work.
    let changed = Document { id: 3, version: 2 };
    onward.start(UPLOAD, &changed).key("upload-3-2").await?.result().await?;
    println!("after a new version of document 3: {} pages read", paid());

    let key = onward.step_key("ocr/3/1").await?.ok_or("it was read")?;
    println!("the key ocr/3/1 was asked for again {} times", key.duplicates);
    worker.shutdown().await?;
    Ok(())
}

static PAGES: AtomicU64 = AtomicU64::new(0);
static INDEX_IS_DOWN: AtomicBool = AtomicBool::new(false);
static INDEX: Mutex<BTreeMap<u64, String>> = Mutex::const_new(BTreeMap::new());

fn paid() -> u64 {
    PAGES.load(Ordering::SeqCst)
}

/// The service that costs money. The key is the same whoever asks, so it can refuse a repeat too.
async fn ocr(_key: &str, document: &Document) -> Result<String, Failure> {
    PAGES.fetch_add(1, Ordering::SeqCst);
    Ok(format!("the text of {} in version {}", document.id, document.version))
}

/// Puts the text where it belongs: to do it again changes nothing.
async fn update_index(_key: &str, document: &Document, text: &str) -> Result<u64, Failure> {
    if INDEX_IS_DOWN.load(Ordering::SeqCst) && document.id.is_multiple_of(4) {
        return Err(Failure::fatal("the index is being rebuilt").code("index_down"));
    }
    INDEX.lock().await.insert(document.id, text.to_owned());
    Ok(document.id)
}
