//! The payload codec of every command: how payloads are read, and how those are stored that it writes.
//!
//! Owns: the flags and variables that say so. Never takes a key from the command line, where every
//! user of the machine could read it.

use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Args;
use onward::Open;
use onward::codec::{Compression, Encryption, KeyRing};

use crate::problem::Problem;

/// The variable that holds the keys themselves.
const KEYS: &str = "ONWARD_PAYLOAD_KEYS";

/// What every store of this process is opened with.
static CHOSEN: OnceLock<Payloads> = OnceLock::new();

/// How payloads are encoded.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Payloads {
    /// The file with the keys of encrypted payloads; ONWARD_PAYLOAD_KEYS may hold its text instead
    #[arg(long = "payload-keys", global = true, env = "ONWARD_PAYLOAD_KEYS_FILE")]
    #[arg(value_name = "FILE")]
    payload_keys: Option<PathBuf>,

    /// Compresses the payloads that this command stores; compressed ones are read in any case
    #[arg(long = "compress-payloads", global = true, env = "ONWARD_COMPRESS_PAYLOADS")]
    compress: bool,
}

impl Payloads {
    /// Makes these the choice for every store that is opened from here on.
    pub(crate) fn choose(&self) {
        let _ = CHOSEN.set(self.clone());
    }

    fn ring(&self) -> Result<Option<KeyRing>, Problem> {
        // An empty variable is one that is not set.
        match &self.payload_keys {
            Some(path) if !path.as_os_str().is_empty() => Ok(Some(KeyRing::from_file(path)?)),
            _ if std::env::var_os(KEYS).is_some_and(|text| !text.is_empty()) => {
                Ok(Some(KeyRing::from_env(KEYS)?))
            }
            _ => Ok(None),
        }
    }
}

/// A store that is opened with the codecs of this process.
pub(crate) fn coded(open: Open) -> Result<Open, Problem> {
    let chosen = CHOSEN.get_or_init(Payloads::default);
    let compression = Compression::new();
    let compression = match chosen.compress {
        true => compression,
        // It reads, and writes nothing.
        false => compression.bytes_min(usize::MAX),
    };
    let open = open.codec(compression);
    Ok(match chosen.ring()? {
        Some(ring) => open.codec(Encryption::new(ring)),
        None => open,
    })
}
