//! Compression of payloads.
//!
//! Owns: [`Compression`]. Never makes a payload larger, and never unpacks more than a payload may be.

use super::{Codec, CodecError, Encoded, PayloadPlace};
use crate::limits::{COMPRESSION_BYTES_MIN, DECODED_BYTES_MAX};

/// What is stored of it with a payload.
pub(super) const NAME: &str = "lz4";

/// Bytes of the length that stands before the compressed ones.
const LENGTH_BYTES: usize = 4;

/// Compresses payloads with LZ4, where that makes them smaller.
///
/// ```
/// use onward::Onward;
/// use onward::codec::Compression;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// let onward = Onward::open("memory:").codec(Compression::new()).await?;
/// # let _ = onward; Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Compression {
    bytes_min: usize,
}

impl Compression {
    /// Compression of payloads from [`COMPRESSION_BYTES_MIN`] on.
    pub fn new() -> Self {
        Self { bytes_min: COMPRESSION_BYTES_MIN }
    }

    /// Leaves payloads of fewer bytes alone.
    #[must_use]
    pub fn bytes_min(mut self, bytes_min: usize) -> Self {
        self.bytes_min = bytes_min;
        self
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for Compression {
    fn name(&self) -> &str {
        NAME
    }

    fn encode(
        &self,
        _place: &PayloadPlace<'_>,
        plain: &[u8],
    ) -> Result<Option<Encoded>, CodecError> {
        if plain.len() < self.bytes_min || plain.len() > DECODED_BYTES_MAX {
            return Ok(None);
        }
        let length = u32::try_from(plain.len())?;
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend(lz4_flex::block::compress(plain));
        // Base64 makes four bytes of three, and a plain payload is stored without it.
        let smaller = bytes.len() / 3 * 4 + LENGTH_BYTES < plain.len();
        Ok(smaller.then(|| Encoded::new(bytes)))
    }

    fn decode(&self, _place: &PayloadPlace<'_>, encoded: &Encoded) -> Result<Vec<u8>, CodecError> {
        let (length, packed) = encoded.bytes.split_first_chunk().ok_or("it is cut short")?;
        let length = usize::try_from(u32::from_be_bytes(*length))?;
        if length > DECODED_BYTES_MAX {
            return Err(format!("it unpacks to {length} bytes, over the limit").into());
        }
        let mut plain = vec![0; length];
        let unpacked = lz4_flex::block::decompress_into(packed, &mut plain);
        match unpacked {
            Ok(bytes) if bytes == length => Ok(plain),
            _ => Err("its compressed bytes are damaged".into()),
        }
    }
}
