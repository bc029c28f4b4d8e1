//! Encryption of payloads.
//!
//! Owns: [`Encryption`]: XChaCha20-Poly1305 under the current key of a ring, bound to the payload's
//! place. Never uses a clock or chance.
//!
//! The nonce is a keyed hash of the place and the payload. So the same payload at the same place is
//! encoded to the same bytes, by which a store knows a write that is repeated; two different payloads
//! have the same nonce only if 192 bits of the hash collide. All that shows is that a payload was
//! replaced by the same at the same place. A generator of random numbers is not needed, so a bad one
//! does no harm.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::key_ring::{KeyRing, RingKey};
use super::{Codec, CodecError, Encoded, PayloadPlace};
use crate::Fingerprint;

const NAME: &str = "xchacha20poly1305";

const NONCE_BYTES: usize = 24;

/// Encrypts every payload with the current key of a [`KeyRing`].
///
/// ```
/// use onward::Onward;
/// use onward::codec::{Compression, Encryption, KeyRing};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// # let text = format!("current k1\nkey k1 {secret}\nfingerprint {secret}");
/// let ring = KeyRing::parse(&text)?; // or KeyRing::from_file("/run/secrets/onward")
/// let onward = Onward::open("memory:")
///     .codec(Compression::new()) // before encryption: nothing compresses afterwards
///     .codec(Encryption::new(ring))
///     .await?;
/// # let _ = onward; Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Encryption {
    ring: KeyRing,
    refuses_plain: bool,
}

impl Encryption {
    /// Encryption with the keys of this ring.
    pub fn new(ring: KeyRing) -> Self {
        Self { ring, refuses_plain: false }
    }

    /// Refuses what is stored plainly, as `payload_unreadable`. Without this, whoever can write to
    /// the database can put a plain payload in the place of an encrypted one. Nothing that was stored
    /// before encryption, or started from SQL, can be read any more.
    #[must_use]
    pub fn refuse_plain(mut self) -> Self {
        self.refuses_plain = true;
        self
    }
}

impl Codec for Encryption {
    fn name(&self) -> &str {
        NAME
    }

    fn encode(
        &self,
        place: &PayloadPlace<'_>,
        plain: &[u8],
    ) -> Result<Option<Encoded>, CodecError> {
        let (id, key) = self.ring.current();
        let bound = bound_to(place, id);
        let nonce = nonce(key, &bound, plain);
        let cipher = cipher(key)?;
        let payload = Payload { msg: plain, aad: &bound };
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
        let mut bytes = nonce.to_vec();
        bytes.extend(sealed.map_err(|_| "the payload cannot be encrypted")?);
        Ok(Some(Encoded::with_key(id, bytes)))
    }

    fn decode(&self, place: &PayloadPlace<'_>, encoded: &Encoded) -> Result<Vec<u8>, CodecError> {
        let id = encoded.key.as_deref().ok_or("its envelope names no key")?;
        let missing = || format!("it is encrypted with key {id:?}, which is not in the key ring");
        let key = self.ring.get(id).ok_or_else(missing)?;
        let (nonce, sealed) =
            encoded.bytes.split_first_chunk::<NONCE_BYTES>().ok_or("it is cut short")?;
        let bound = bound_to(place, id);
        let payload = Payload { msg: sealed, aad: &bound };
        let refused = |_| {
            format!(
                "it does not open with key {id:?}: it was changed, comes from another place, or \
                 the key of that id is another one"
            )
        };
        Ok(cipher(key)?.decrypt(&XNonce::from(*nonce), payload).map_err(refused)?)
    }

    fn fingerprint(&self, plain: Fingerprint) -> Fingerprint {
        self.ring.fingerprint(plain)
    }

    fn refuses_plain(&self) -> bool {
        self.refuses_plain
    }
}

fn cipher(key: &RingKey) -> Result<XChaCha20Poly1305, CodecError> {
    XChaCha20Poly1305::new_from_slice(key.sealing()).map_err(|error| error.to_string().into())
}

/// What a payload is bound to: its place, and the key of this id.
fn bound_to(place: &PayloadPlace<'_>, id: &str) -> Vec<u8> {
    let mut bound = place.binding();
    bound.extend_from_slice(id.as_bytes());
    bound
}

fn nonce(key: &RingKey, bound: &[u8], plain: &[u8]) -> [u8; NONCE_BYTES] {
    let length = (bound.len() as u64).to_be_bytes();
    let hash = key.nonce_hash(&[&length, bound, plain]);
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&hash[..NONCE_BYTES]);
    nonce
}
