//! The keys of encrypted payloads.
//!
//! Owns: [`KeyRing`], [`SecretKey`], and how they are read from a file or the environment. Never shows
//! a key, neither in an error nor in `Debug`, and wipes it from memory when it is dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::error::check_name;
use crate::{Code, Error, Fingerprint};

const KEY_BYTES: usize = 32;

/// 32 secret bytes. `openssl rand -base64 32` makes some.
///
/// ```
/// use onward::codec::SecretKey;
///
/// let key = SecretKey::from_base64("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")?;
/// assert_eq!(format!("{key:?}"), "SecretKey");
/// # Ok::<(), onward::Error>(())
/// ```
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; KEY_BYTES]>);

impl SecretKey {
    /// The key that these bytes are.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key that this text is, in base64.
    ///
    /// # Errors
    /// `invalid_key_ring` when it is no base64, or not of 32 bytes.
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        let invalid = |about: &str| Error::new(Code::InvalidKeyRing).about(about);
        let bytes = STANDARD.decode(text.trim()).map_err(|_| invalid("a key is no base64"))?;
        let bytes = Zeroizing::new(bytes);
        let bytes = <[u8; KEY_BYTES]>::try_from(bytes.as_slice());
        bytes.map(Self::new).map_err(|_| invalid("a key is not of 32 bytes"))
    }

    /// A key of its own for one purpose.
    fn derive(&self, purpose: &str) -> Self {
        Self::new(keyed_hash(self, &[purpose.as_bytes()]))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

fn keyed_hash(key: &SecretKey, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    let mut key_block = Zeroizing::new([0; 64]);
    key_block[..KEY_BYTES].copy_from_slice(key.0.as_slice());
    let mut mac = Hmac::<Sha256>::new(&(*key_block).into());
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// One key of a ring, as it is used.
#[derive(Debug)]
pub(super) struct RingKey {
    sealing: SecretKey,
    nonces: SecretKey,
}

impl RingKey {
    fn of(key: &SecretKey) -> Self {
        let (sealing, nonces) = ("onward payload sealing", "onward payload nonces");
        Self { sealing: key.derive(sealing), nonces: key.derive(nonces) }
    }

    /// The key that payloads are encrypted with.
    pub(super) fn sealing(&self) -> &[u8] {
        self.sealing.0.as_slice()
    }

    pub(super) fn nonce_hash(&self, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
        keyed_hash(&self.nonces, parts)
    }
}

/// The keys that payloads are encrypted with: one that is current, any number of older ones to read
/// with, and one for fingerprints, which stays the same for ever.
///
/// As a text, in a file or a variable of the environment, each line (or part before a `;`) is one of:
///
/// ```text
/// current k2           # what is written is encrypted with this key
/// key k2 BASE64        # 32 bytes: openssl rand -base64 32
/// key k1 BASE64        # an older one, to read with
/// fingerprint BASE64   # never change it: keys of runs compare their inputs by it
/// ```
///
/// To change keys, add the new one everywhere first, and make it current after that.
#[derive(Clone)]
pub struct KeyRing {
    current: String,
    keys: BTreeMap<String, Arc<RingKey>>,
    fingerprints: SecretKey,
}

impl KeyRing {
    /// A ring whose current key is this one, under this id.
    ///
    /// # Errors
    /// `invalid_key_ring` when the id is empty or too long.
    pub fn new(
        id: impl Into<String>,
        current: &SecretKey,
        fingerprints: SecretKey,
    ) -> Result<Self, Error> {
        let id = id.into();
        let ring = Self { current: id.clone(), keys: BTreeMap::new(), fingerprints };
        ring.and(id, current)
    }

    /// One more key, to read with.
    ///
    /// # Errors
    /// `invalid_key_ring` when the id is empty or too long, or is there.
    pub fn and(mut self, id: impl Into<String>, key: &SecretKey) -> Result<Self, Error> {
        let id = id.into();
        check_name("key id", &id).map_err(|error| invalid(error.detail()))?;
        if self.keys.contains_key(&id) {
            return Err(invalid(format!("two keys have the id {id:?}")));
        }
        self.keys.insert(id, Arc::new(RingKey::of(key)));
        Ok(self)
    }

    /// The ring that this text describes.
    ///
    /// # Errors
    /// `invalid_key_ring`, which says what is missing or wrong, and shows no key.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (mut current, mut keys, mut fingerprints) = (None, Vec::new(), None);
        for line in text.split(['\n', ';']) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                ["current", id] => current = Some((*id).to_owned()),
                ["key", id, key] => keys.push(((*id).to_owned(), SecretKey::from_base64(key)?)),
                ["fingerprint", key] => fingerprints = Some(SecretKey::from_base64(key)?),
                _ => {
                    let forms = "current ID, key ID BASE64 or fingerprint BASE64";
                    return Err(invalid(format!("a line is not one of: {forms}")));
                }
            }
        }
        let current = current.ok_or_else(|| invalid("no line says which key is current"))?;
        let fingerprints = fingerprints.ok_or_else(|| invalid("there is no fingerprint line"))?;
        let ring = Self { current, keys: BTreeMap::new(), fingerprints };
        let ring = keys.iter().try_fold(ring, |ring, (id, key)| ring.and(id.as_str(), key))?;
        if !ring.keys.contains_key(&ring.current) {
            return Err(invalid(format!("the current key {:?} has no key line", ring.current)));
        }
        Ok(ring)
    }

    /// The ring that this file describes.
    ///
    /// # Errors
    /// `invalid_key_ring` when it cannot be read, and as [`parse`](KeyRing::parse).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| invalid(format!("{}", path.display())).because(source))?;
        Self::parse(&Zeroizing::new(text))
    }

    /// The ring that this variable of the environment describes.
    ///
    /// # Errors
    /// `invalid_key_ring` when it is not set, and as [`parse`](KeyRing::parse).
    pub fn from_env(name: &str) -> Result<Self, Error> {
        let text = std::env::var(name).map_err(|_| invalid(format!("{name} is not set")))?;
        Self::parse(&Zeroizing::new(text))
    }

    pub(super) fn current(&self) -> (&str, &RingKey) {
        // Every way to make a ring enters its current key.
        (&self.current, &self.keys[&self.current])
    }

    pub(super) fn get(&self, id: &str) -> Option<&RingKey> {
        self.keys.get(id).map(Arc::as_ref)
    }

    pub(super) fn fingerprint(&self, plain: Fingerprint) -> Fingerprint {
        Fingerprint(keyed_hash(&self.fingerprints, &[b"onward fingerprint", &plain.0]))
    }
}

fn invalid(about: impl Into<String>) -> Error {
    Error::new(Code::InvalidKeyRing).about(about)
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.keys.keys().collect();
        f.debug_struct("KeyRing").field("current", &self.current).field("keys", &ids).finish()
    }
}
