//! The server as its users meet it: a real port, a real file, and bytes of HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

#[path = "http/mod.rs"]
mod cases;

/// A database file of a test's own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path().join("onward.db").display())
    }
}
