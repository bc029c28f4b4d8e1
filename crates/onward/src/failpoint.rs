//! Named points around the writes at which a test kills the process.
//!
//! Owns: reading `ONWARD_FAILPOINT=name` or `name:N` (the N-th time it is reached) and dying there
//! with SIGKILL, so that nothing is flushed or unwound. Without the feature it is nothing at all.

/// Dies here if a test asked for it.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn hit(_name: &'static str) {}

/// Dies here if a test asked for it.
#[cfg(feature = "failpoints")]
pub(crate) fn hit(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    static WANTED: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("ONWARD_FAILPOINT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicI64::new(count.parse().unwrap_or(1))))
    });
    if let Some((wanted, left)) = wanted
        && wanted == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
