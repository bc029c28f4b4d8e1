//! What `onward::testing` promises: time that jumps exactly, and a checker that finds what it must.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

#[path = "testing/check.rs"]
mod check;
#[path = "testing/example.rs"]
mod example;
#[path = "testing/mistake.rs"]
mod mistake;
#[path = "testing/time.rs"]
mod time;
#[cfg(feature = "sqlite")]
#[path = "testing/transaction.rs"]
mod transaction;
#[path = "testing/undo.rs"]
mod undo;
