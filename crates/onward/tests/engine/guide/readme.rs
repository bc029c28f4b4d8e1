//! The code of the README, line by line, and executed: a start, then the backfill with the same key.
//!
//! Owns: code that stands in `README.md`, with what it needs around it. Never formatted: the page has it as
//! it is.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, Retry, Workflow};
use serde::{Deserialize, Serialize};

const INDEX_ATTACHMENT: Workflow<Attachment, Indexed> = Workflow::named("index-attachment");

static SCANS: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Attachment {
    id: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Customer {
    premium: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Indexed(Option<u64>);

impl Indexed {
    fn skipped() -> Self {
        Self(None)
    }

    fn done(document: u64) -> Self {
        Self(Some(document))
    }
}

async fn find_customer(file: &Attachment) -> Result<Customer, Failure> {
    Ok(Customer { premium: file.id != 0 })
}

async fn run_ocr(file: &Attachment) -> Result<String, Failure> {
    match SCANS.fetch_add(1, Ordering::SeqCst) {
        0 => Err(Failure::new("the OCR service is overloaded")),
        _ => Ok(format!("the text of {}", file.id)),
    }
}

async fn update_index(key: &str, file: &Attachment, text: &str) -> Result<u64, Failure> {
    assert!(key.ends_with("/update index") && text.starts_with("the text"));
    Ok(file.id)
}

#[rustfmt::skip]
mod the_example {
    use super::*;

    async fn index_attachment(ctx: Ctx, file: Attachment) -> Result<Indexed, Failure> {
        let customer = ctx.step("find customer", async |_| find_customer(&file).await).await?;
        if !customer.premium {
            return Ok(Indexed::skipped());
        }
        let ocr = ctx.step("ocr", async |_| run_ocr(&file).await);
        let text = ocr.retry(Retry::exponential(Duration::from_millis(200)).tries(8)).await?;
        let index = ctx.step("update index", async |step| update_index(step.id(), &file, &text).await);
        Ok(Indexed::done(index.await?))
    }

    async fn whole(file: Attachment) -> Result<Indexed, onward::Error> {
        let onward = Onward::open("sqlite:onward.db").await?;
        let worker = onward.worker().serve(INDEX_ATTACHMENT, index_attachment).start().await?;
        let run = onward.start(INDEX_ATTACHMENT, &file).key(format!("attachment-{}", file.id)).await?;
        let indexed = run.result().await?;
        worker.shutdown().await?;
        Ok(indexed)
    }

    #[tokio::test]
    async fn the_backfill_finds_what_was_started_one_by_one() -> Result<(), onward::Error> {
        let onward = Onward::open("memory:").await?;
        let worker = onward.worker().serve(INDEX_ATTACHMENT, index_attachment).start().await?;
        let file = Attachment { id: 7 };
        let run = onward.start(INDEX_ATTACHMENT, &file).key(format!("attachment-{}", file.id)).await?;
        assert_eq!(run.result().await?, Indexed(Some(7)));
        let scans = SCANS.load(Ordering::SeqCst);
        super::the_backfill::backfill(&onward, vec![file, Attachment { id: 0 }]).await?;
        let key = |id: u64| format!("attachment-{id}");
        onward.by_key(INDEX_ATTACHMENT, &key(0)).await?.result().await?;
        assert_eq!(onward.stats().await?.runs.values().sum::<u64>(), 2, "one run each");
        assert_eq!(SCANS.load(Ordering::SeqCst), scans, "the work was done a second time");
        worker.shutdown().await
    }
}

#[rustfmt::skip]
mod the_backfill {
    use super::*;

    pub(super) async fn backfill(onward: &Onward, attachments: Vec<Attachment>) -> Result<(), onward::Error> {
        let keyed = |file: &Attachment| format!("attachment-{}", file.id);
        onward.start_many(INDEX_ATTACHMENT, attachments).key(keyed).await?;
        Ok(())
    }
}
