//! The stored form of an encoded payload.
//!
//! Owns: the envelope, a JSON object that fits wherever a payload fits. Never knows what a codec did;
//! it holds the bytes and says who made them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::RunId;

/// How every envelope begins, exactly so. A payload that begins like this is put into an envelope
/// itself, and one that a database has written anew has a space after the colon.
const MARK: &str = "{\"$onward\":";

/// The version of the form.
const VERSION: u32 = 1;

/// An encoded payload.
pub(super) struct Envelope {
    /// The run that a signal was sent to: what nobody took goes along with a run that goes on as
    /// another, and stays bound to the first.
    pub(super) sent_to: Option<RunId>,
    /// What was done to it, in order.
    pub(super) layers: Vec<Layer>,
    /// What came of that.
    pub(super) data: Vec<u8>,
}

/// What one codec did to a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layer {
    /// The codec's name.
    pub(super) codec: String,
    /// The id of the key that it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
}

/// The envelope as it is written.
#[derive(Serialize, Deserialize)]
struct Text {
    #[serde(rename = "$onward")]
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent_to: Option<RunId>,
    layers: Vec<Layer>,
    data: String,
}

/// Whether a text begins as an envelope does.
pub(crate) fn is_envelope(text: &str) -> bool {
    text.starts_with(MARK)
}

impl Envelope {
    pub(super) fn to_text(&self) -> String {
        let data = STANDARD.encode(&self.data);
        let (sent_to, layers) = (self.sent_to, self.layers.clone());
        let text = Text { version: VERSION, sent_to, layers, data };
        // Strings and numbers have a JSON form.
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// The envelope that a stored text is, if it is one, or why it cannot be opened.
    pub(super) fn read(text: &str) -> Option<Result<Self, String>> {
        is_envelope(text).then(|| {
            let broken = || "its envelope is damaged".to_owned();
            let text: Text = serde_json::from_str(text).map_err(|_| broken())?;
            if text.version != VERSION {
                return Err(format!("it was written by a newer version ({})", text.version));
            }
            let data = STANDARD.decode(text.data).map_err(|_| broken())?;
            Ok(Self { sent_to: text.sent_to, layers: text.layers, data })
        })
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyed = self.layers.iter().rev().find_map(|layer| layer.key.as_ref());
        let codecs: Vec<_> = self.layers.iter().map(|layer| layer.codec.as_str()).collect();
        match keyed {
            Some(key) => write!(f, "encrypted with key {key:?}"),
            None if codecs.is_empty() => f.write_str("stored plainly"),
            None => write!(f, "encoded by {codecs:?}"),
        }
    }
}
