//! The cases over a real file of SQLite.

#[path = "cases/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "the cases are tried on two stores")]
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
