//! The form in which payloads are stored: plainly, or compressed and encrypted.
//!
//! Owns: how victims and tests open a store of each form alike. Its keys are no secret.

use onward::codec::{Compression, Encryption, KeyRing, SecretKey};
use onward::{Error, Onward};

/// The variable that makes a victim encode its payloads.
pub const VARIABLE: &str = "ONWARD_CRASH_ENCODED";

/// Bytes from which payloads are compressed: those of the victims are small.
const BYTES_MIN: usize = 8;

/// How payloads are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    #[default]
    Plain,
    /// Compressed and encrypted, and what is plain is refused.
    Encoded,
}

impl Form {
    /// What the environment asks for.
    pub fn from_environment() -> Self {
        if std::env::var_os(VARIABLE).is_some() { Form::Encoded } else { Form::Plain }
    }

    /// Opens a store of this form.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn open(self, url: &str) -> Result<Onward, Error> {
        let open = Onward::open(url);
        match self {
            Form::Plain => open.await,
            Form::Encoded => {
                let ring = KeyRing::new("k1", &SecretKey::new([1; 32]), SecretKey::new([2; 32]))?;
                let open = open.codec(Compression::new().bytes_min(BYTES_MIN));
                open.codec(Encryption::new(ring).refuse_plain()).await
            }
        }
    }
}
