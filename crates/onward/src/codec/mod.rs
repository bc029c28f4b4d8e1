//! The payload codec: what is done to a payload on its way into the store, and undone on its way out.
//!
//! Owns: [`Codec`], the places that payloads have, and [`Coding`], which applies a client's codecs in
//! their order. Never touches an id, a name, a key, a tag or a time: those stay readable, so that runs
//! can be found, claimed and explained without any secret.

#[cfg(feature = "compression")]
mod compression;
#[cfg(feature = "encryption")]
mod encryption;
mod envelope;
#[cfg(feature = "encryption")]
mod key_ring;
mod place;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

#[cfg(feature = "compression")]
pub use compression::Compression;
#[cfg(feature = "encryption")]
pub use encryption::Encryption;
pub(crate) use envelope::is_envelope;
use envelope::{Envelope, Layer};
#[cfg(feature = "encryption")]
pub use key_ring::{KeyRing, SecretKey};
pub use place::PayloadPlace;

use crate::{Fingerprint, Json, RunId};

/// Why a codec could not do its part.
pub type CodecError = Box<dyn StdError + Send + Sync>;

/// One thing that is done to every stored payload: compression, encryption, or something of your own.
///
/// Several codecs of a client are applied in the order in which they were given, and undone in the
/// reverse order. What each did is stored with the payload, so one that was given up later is still
/// needed to read what it wrote.
///
/// **The same payload at the same place must be encoded to the same bytes.** A write whose answer was
/// lost is written again, and the store knows the repeat by being the same.
///
/// ```
/// use onward::codec::{Codec, CodecError, Encoded, PayloadPlace};
///
/// /// Nobody reads this by accident.
/// #[derive(Debug)]
/// struct Backwards;
///
/// impl Codec for Backwards {
///     fn name(&self) -> &str {
///         "backwards"
///     }
///
///     fn encode(&self, _: &PayloadPlace<'_>, plain: &[u8]) -> Result<Option<Encoded>, CodecError> {
///         Ok(Some(Encoded::new(plain.iter().rev().copied().collect())))
///     }
///
///     fn decode(&self, _: &PayloadPlace<'_>, encoded: &Encoded) -> Result<Vec<u8>, CodecError> {
///         Ok(encoded.bytes.iter().rev().copied().collect())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # use onward::{Onward, Workflow};
/// # const GREET: Workflow<String, ()> = Workflow::named("greet");
/// let onward = Onward::open("memory:").codec(Backwards).await?;
/// # let run = onward.start(GREET, &"Ada".to_owned()).await?;
/// # assert_eq!(run.status().await?.input.as_str(), "\"Ada\"");
/// # Ok(()) }
/// ```
pub trait Codec: fmt::Debug + Send + Sync + 'static {
    /// Its name, which is stored with what it encoded, and by which it is found again.
    fn name(&self) -> &str;

    /// Encodes a payload; `None` leaves it as it is.
    ///
    /// # Errors
    /// Whatever is in its way for now: the write is not made, and is tried again as when the store
    /// does not answer.
    fn encode(&self, place: &PayloadPlace<'_>, plain: &[u8])
    -> Result<Option<Encoded>, CodecError>;

    /// Undoes what `encode` did at the same place.
    ///
    /// # Errors
    /// Why it cannot be read; it is part of a `payload_unreadable`, so it must not hold a secret.
    fn decode(&self, place: &PayloadPlace<'_>, encoded: &Encoded) -> Result<Vec<u8>, CodecError>;

    /// The fingerprint that is stored for one that was computed from a plain payload, so that it
    /// gives nothing away. The same over all changes of keys, or a key meets its own input as
    /// another.
    fn fingerprint(&self, plain: Fingerprint) -> Fingerprint {
        plain
    }

    /// Whether a payload that this codec did not encode is refused.
    fn refuses_plain(&self) -> bool {
        false
    }
}

/// What a codec made of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The id of the key that it was encoded with, which is stored readably.
    pub key: Option<String>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Encoded {
    /// Bytes that need no key.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { key: None, bytes }
    }

    /// Bytes that need the key of this id.
    pub fn with_key(key: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { key: Some(key.into()), bytes }
    }
}

/// What is said of a stored payload that is encoded and was not read: by whom, and with which key.
///
/// ```
/// use onward::Json;
/// use onward::codec::describe;
///
/// assert_eq!(describe(&Json::of("plain")?), None);
/// # Ok::<(), onward::Error>(())
/// ```
pub fn describe(json: &Json) -> Option<String> {
    let envelope = Envelope::read(json.as_str())?;
    Some(envelope.map_or_else(|why| why, |envelope| envelope.to_string()))
}

/// An envelope of nothing but the payload itself.
pub(crate) fn stored_plainly(plain: &str) -> String {
    Envelope { sent_to: None, layers: Vec::new(), data: plain.as_bytes().to_vec() }.to_text()
}

/// A stored payload that cannot be read here: its key or codec is missing, or it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The run that it belongs to, if it belongs to one.
    pub run: Option<RunId>,
    /// Which of its payloads it is.
    pub place: String,
    /// Why it cannot be read.
    pub why: String,
}

impl Unreadable {
    fn new(place: &PayloadPlace<'_>, why: impl Into<String>) -> Self {
        Self { run: place.run(), place: place.to_string(), why: why.into() }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl StdError for Unreadable {}

/// The codecs of a client, in the order in which they are applied.
#[derive(Clone, Default)]
pub struct Coding {
    codecs: Vec<Arc<dyn Codec>>,
}

impl Coding {
    /// No codec: payloads are stored as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies this codec after those before.
    #[must_use]
    pub fn and(mut self, codec: Arc<dyn Codec>) -> Self {
        self.codecs.push(codec);
        self
    }

    /// Whether it has no codec.
    pub fn is_empty(&self) -> bool {
        self.codecs.is_empty()
    }

    /// The stored form of a payload; `None`: it is stored as it is.
    ///
    /// # Errors
    /// What a codec failed with.
    pub fn encode(
        &self,
        place: &PayloadPlace<'_>,
        plain: &str,
    ) -> Result<Option<String>, CodecError> {
        let (layers, bytes) = self.apply(place, plain)?;
        // What looks like the stored form must not be taken for it when it is read.
        if layers.is_empty() && !is_envelope(plain) {
            return Ok(None);
        }
        Ok(Some(Envelope { sent_to: sent_to(place), layers, data: bytes }.to_text()))
    }

    /// The stored form of a payload, in an envelope even if no codec did anything.
    pub(crate) fn wrap(&self, place: &PayloadPlace<'_>, plain: &str) -> Result<String, CodecError> {
        let (layers, data) = self.apply(place, plain)?;
        Ok(Envelope { sent_to: sent_to(place), layers, data }.to_text())
    }

    fn apply(
        &self,
        place: &PayloadPlace<'_>,
        plain: &str,
    ) -> Result<(Vec<Layer>, Vec<u8>), CodecError> {
        let (mut layers, mut bytes) = (Vec::new(), Cow::Borrowed(plain.as_bytes()));
        for codec in &self.codecs {
            if let Some(encoded) = codec.encode(place, &bytes)? {
                layers.push(Layer { codec: codec.name().to_owned(), key: encoded.key });
                bytes = Cow::Owned(encoded.bytes);
            }
        }
        Ok((layers, bytes.into_owned()))
    }

    /// The payload of which this is the stored form; `None`: it was stored as it is.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn decode(
        &self,
        place: &PayloadPlace<'_>,
        stored: &str,
    ) -> Result<Option<String>, Unreadable> {
        let unreadable = |why: String| Unreadable::new(place, why);
        let Some(envelope) = Envelope::read(stored) else {
            return self.accept(place, &[]).map(|()| None);
        };
        let Envelope { layers, data, .. } = envelope.map_err(unreadable)?;
        self.accept(place, &layers)?;
        let mut bytes = data;
        for Layer { codec, key } in layers.into_iter().rev() {
            let missing = || format!("no codec {codec:?} is set up here");
            let found = self.find(&codec).ok_or_else(|| unreadable(missing()))?;
            let encoded = Encoded { key, bytes };
            bytes = found.decode(place, &encoded).map_err(|why| unreadable(why.to_string()))?;
        }
        let text = String::from_utf8(bytes).ok().filter(|text| is_json(text));
        text.map(Some).ok_or_else(|| unreadable("what was decoded is no JSON".to_owned()))
    }

    /// Refuses a payload that a codec should have encoded.
    fn accept(&self, place: &PayloadPlace<'_>, layers: &[Layer]) -> Result<(), Unreadable> {
        let encoded = |codec: &dyn Codec| layers.iter().any(|layer| layer.codec == codec.name());
        let strict = self.codecs.iter().find(|codec| codec.refuses_plain() && !encoded(&***codec));
        let Some(codec) = strict else { return Ok(()) };
        let why =
            format!("codec {:?} did not encode it, and plain payloads are refused", codec.name());
        Err(Unreadable::new(place, why))
    }

    fn find(&self, name: &str) -> Option<Arc<dyn Codec>> {
        let known = self.codecs.iter().find(|codec| codec.name() == name).cloned();
        // What needs no key can always be undone.
        #[cfg(feature = "compression")]
        let known = known.or_else(|| {
            (name == compression::NAME).then(|| Arc::new(Compression::new()) as Arc<dyn Codec>)
        });
        known
    }

    /// The run that a stored signal was sent to first.
    pub(crate) fn sent_to(stored: &str) -> Option<RunId> {
        Envelope::read(stored)?.ok()?.sent_to
    }

    /// The fingerprint to store for this one.
    pub(crate) fn fingerprint(&self, plain: Fingerprint) -> Fingerprint {
        self.codecs.iter().fold(plain, |fingerprint, codec| codec.fingerprint(fingerprint))
    }
}

impl fmt::Debug for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.codecs.iter().map(|codec| codec.name())).finish()
    }
}

fn sent_to(place: &PayloadPlace<'_>) -> Option<RunId> {
    match place {
        PayloadPlace::Signal { run, .. } => Some(*run),
        _ => None,
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests;
