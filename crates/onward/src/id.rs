//! Identifiers that the engine makes: runs, workers, and the random values of a workflow.
//!
//! Owns: their types and text forms. Never asks a store for an id: ids exist before the first
//! write, so that a write can be repeated.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A 128-bit identifier, written in the usual form with hyphens.
///
/// ```
/// use onward::Uuid;
///
/// let id: Uuid = "01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
/// assert_eq!(Uuid::from_u128(id.as_u128()), id);
/// # Ok::<(), onward::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(u128);

impl Uuid {
    /// A new identifier that sorts after those made before it (version 7).
    pub(crate) fn now() -> Self {
        Self(uuid::Uuid::now_v7().as_u128())
    }

    /// An identifier with these bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// An identifier derived from other data: version 8, whose bits are the maker's own.
    pub(crate) fn derived(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::new_v8(bytes).as_u128())
    }

    /// The bits of this identifier.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", uuid::Uuid::from_u128(self.0).hyphenated())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match uuid::Uuid::try_parse(text) {
            Ok(id) => Ok(Self(id.as_u128())),
            Err(_) => Err(crate::Error::invalid_id(text)),
        }
    }
}

impl Serialize for Uuid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The name of one run, made by the engine. Runs sort by the time they were started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

/// The name of one worker: fresh for each start of a worker, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(Uuid);

/// The name of one row of the audit. Rows sort by the time they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuditId(Uuid);

macro_rules! identifier {
    ($name:ident) => {
        impl $name {
            /// A new identifier that sorts after those made before it.
            pub fn new() -> Self {
                Self(Uuid::now())
            }

            /// The identifier with these bits.
            pub const fn from_u128(bits: u128) -> Self {
                Self(Uuid::from_u128(bits))
            }

            /// The bits of this identifier.
            pub const fn as_u128(self) -> u128 {
                self.0.as_u128()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = crate::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

impl RunId {
    /// The id of the run that `parent` starts as this step: the same however often it does, and next
    /// to the parent's in the order of runs.
    pub(crate) fn derived(parent: RunId, step: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(parent.as_u128().to_be_bytes());
        hash.update(step.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        bytes[..6].copy_from_slice(&parent.as_u128().to_be_bytes()[..6]);
        Self(Uuid::derived(bytes))
    }
}

identifier!(RunId);
identifier!(WorkerId);
identifier!(AuditId);
