//! The workflow of `examples/index_attachment.rs`, checked, with fakes in place of its services.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onward::testing::{Effects, Finding, TestOnward, retry_safe};
use onward::{Ctx, Failure, Retry, Workflow};
use serde::{Deserialize, Serialize};

const INDEX_ATTACHMENT: Workflow<Attachment, String> = Workflow::named("index-attachment");

#[derive(Clone, Serialize, Deserialize)]
struct Attachment {
    id: u64,
    channel: String,
}

#[derive(Serialize, Deserialize)]
struct Customer {
    premium: bool,
}

/// The services, as the workflow sees them.
#[derive(Clone)]
struct Services {
    effects: Effects,
    /// How often OCR was asked; it is down for the first two calls.
    ocr_calls: Arc<AtomicU32>,
}

impl Services {
    fn new(effects: Effects) -> Self {
        let ocr_calls = effects.outside("OCR calls", AtomicU32::default);
        Self { effects, ocr_calls }
    }

    async fn find_customer(&self, channel: &str) -> Result<Customer, Failure> {
        Ok(Customer { premium: channel == "#invoices" })
    }

    async fn ocr(&self, file: &Attachment) -> Result<String, Failure> {
        match self.ocr_calls.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(Failure::new("the OCR service is overloaded")),
            _ => Ok(format!("the text of {}", file.id)),
        }
    }

    async fn update_index(&self, key: &str, text: &str) -> Result<String, Failure> {
        self.effects.note("update index").key(key).payload(text).await;
        Ok(format!("indexed {} characters", text.len()))
    }
}

async fn index_attachment(
    ctx: Ctx,
    file: Attachment,
    services: Services,
) -> Result<String, Failure> {
    let find = async |_| services.find_customer(&file.channel).await;
    if !ctx.step("find customer", find).await?.premium {
        return Ok("skipped".to_owned());
    }
    let text = ctx
        .step("ocr", async |_| services.ocr(&file).await)
        .retry(Retry::exponential(Duration::from_millis(200)).tries(8))
        .timeout(Duration::from_secs(30))
        .await?;
    ctx.step("update index", async |step| services.update_index(step.id(), &text).await).await
}

fn attachment() -> Attachment {
    Attachment { id: 7, channel: "#invoices".to_owned() }
}

fn build(
    effects: Effects,
) -> impl Fn(Ctx, Attachment) -> futures::future::BoxFuture<'static, Result<String, Failure>> {
    let services = Services::new(effects);
    move |ctx, file| Box::pin(index_attachment(ctx, file, services.clone()))
}

#[tokio::test]
async fn indexing_an_attachment_is_safe_to_retry() {
    let report = retry_safe(INDEX_ATTACHMENT, build, &attachment()).check().await;
    assert!(report.is_safe(), "{report}");
    assert_eq!(report.effects, 1);
    assert!(report.points >= 2 * 6, "an effect, three steps, two failed tries: {report}");
}

#[tokio::test]
async fn indexing_under_a_key_of_one_s_own_making_is_not() {
    let build = |effects: Effects| {
        let services = Services::new(effects);
        move |ctx: Ctx, file: Attachment| {
            let services = services.clone();
            async move {
                let update = async |_| {
                    let key = format!("{:?}", Instant::now());
                    services.update_index(&key, &file.channel).await
                };
                ctx.step("update index", update).await
            }
        }
    };
    let report = retry_safe(INDEX_ATTACHMENT, build, &attachment()).check().await;
    let is_key = |finding: &Finding| matches!(finding, Finding::KeyDiffers { .. });
    assert!(report.findings.iter().any(|found| is_key(&found.finding)), "{report}");
}

#[tokio::test]
async fn indexing_an_attachment_takes_no_time_in_a_test() {
    let effects = Effects::new();
    let onward = TestOnward::new().await.unwrap();
    onward.worker().serve(INDEX_ATTACHMENT, build(effects.clone())).start().await.unwrap();
    let run = onward.start(INDEX_ATTACHMENT, &attachment()).key("attachment-7").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "indexed 13 characters");
    assert_eq!(effects.happened("update index"), 1);
}
