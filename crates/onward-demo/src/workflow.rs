//! The workflow of the demo: find customer → ocr → update index.
//!
//! Owns: what the worker executes. The same function as in `examples/index_attachment.rs`, with
//! services that are called over the network.

use std::time::Duration;

use onward::{Ctx, Failure, Retry, Workflow};
use serde::{Deserialize, Serialize};

use crate::service::{Client, Request};

pub(crate) const INDEX_ATTACHMENT: Workflow<Attachment, Indexed> =
    Workflow::named("index-attachment");

pub(crate) const FIND_CUSTOMER: &str = "find customer";
pub(crate) const OCR: &str = "ocr";
pub(crate) const UPDATE_INDEX: &str = "update index";

/// One in this many attachments belongs to a customer who does not pay, and is skipped.
const FREE_EVERY: u64 = 10;

/// Tries of the ocr step: with one call in five failing, all of them fail once in 10^11 runs.
const OCR_TRIES: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) id: u64,
    pub(crate) channel: String,
}

impl Attachment {
    pub(crate) fn number(id: u64) -> Self {
        let plan = if id.is_multiple_of(FREE_EVERY) { "free" } else { "premium" };
        Self { id, channel: format!("{plan}-{}", id % 7) }
    }

    pub(crate) fn key(&self) -> String {
        format!("attachment-{}", self.id)
    }

    /// Whether its customer pays: what the customer service answers.
    pub(crate) fn is_premium(&self) -> bool {
        self.channel.starts_with("premium")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Customer {
    pub(crate) premium: bool,
}

/// The output of a run. `document` is the number that the search service gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Indexed {
    pub(crate) attachment: u64,
    pub(crate) document: Option<u64>,
}

pub(crate) async fn index_attachment(
    client: Client,
    ctx: Ctx,
    file: Attachment,
) -> Result<Indexed, Failure> {
    let customer: Customer = ctx
        .step(FIND_CUSTOMER, async |step| client.customers(&request(step.id(), &file, None)).await)
        .await?;
    if !customer.premium {
        return Ok(Indexed { attachment: file.id, document: None });
    }
    let text: String = ctx
        .step(OCR, async |step| client.ocr(&request(step.id(), &file, None)).await)
        .retry(
            Retry::exponential(Duration::from_millis(50))
                .cap(Duration::from_millis(500))
                .tries(OCR_TRIES),
        )
        .timeout(Duration::from_secs(10))
        .await?;
    let document = ctx
        .step(UPDATE_INDEX, async |step| {
            client.search(&request(step.id(), &file, Some(&text))).await
        })
        .await?;
    Ok(Indexed { attachment: file.id, document: Some(document) })
}

/// The step's id goes with every call: the service that dedupes does so by it, and all of them
/// write it in their logs.
fn request(step: &str, file: &Attachment, text: Option<&str>) -> Request {
    Request {
        process: 0,
        step: step.to_owned(),
        attachment: file.clone(),
        text: text.map(str::to_owned),
    }
}
