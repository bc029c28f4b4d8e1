//! Keys: the caller's own names for requests.
//!
//! Owns: how a key is put together. Never looks one up; that is the store's, in the same
//! transaction as the run.

use std::fmt;

use serde::Serialize;

use crate::error::check_text;
use crate::limits::KEY_BYTES_MAX;
use crate::{Error, Json};

/// The caller's name for a request: two starts with the same key are one run.
///
/// ```
/// use onward::Key;
///
/// let plain = Key::from("order-123");
/// let joined = Key::of(["order", "123", "process"]);
/// assert_eq!(joined.as_str(), "order/123/process");
/// assert_ne!(Key::of(["a/b", "c"]), Key::of(["a", "b/c"]));
///
/// let hashed = Key::hash("process-order", &serde_json::json!({"id": 7, "total": 1.0}))?;
/// assert_eq!(hashed, Key::hash("process-order", &serde_json::json!({"total": 1, "id": 7}))?);
/// # let _ = plain;
/// # Ok::<(), onward::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Joins parts with `/`. The join is unambiguous: a `/` or `%` inside a part is escaped, so
    /// different parts never make the same key.
    pub fn of<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> Self {
        let escaped: Vec<String> = parts
            .into_iter()
            .map(|part| part.as_ref().replace('%', "%25").replace('/', "%2F"))
            .collect();
        Self(escaped.join("/"))
    }

    /// A key made from a payload: equal for payloads that are equal as canonical JSON.
    ///
    /// # Errors
    /// `not_serializable` and `payload_too_large`, as for an input.
    pub fn hash<T: Serialize + ?Sized>(purpose: &str, payload: &T) -> Result<Self, Error> {
        Ok(Self::of([purpose, &Json::of(payload)?.fingerprint().to_string()]))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_text("key", &self.0, KEY_BYTES_MAX)
    }
}

impl<T: Into<String>> From<T> for Key {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
