//! Named points around the writes, at which a test can kill the process.

/// Does nothing.
#[inline]
pub(crate) fn hit(name: &'static str) {
    let _ = name;
}
