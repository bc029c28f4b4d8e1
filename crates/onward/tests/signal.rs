//! Signals and children through the public face, on each store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

#[cfg(feature = "postgres")]
#[path = "database/mod.rs"]
mod database;

#[path = "signal/stores.rs"]
mod stores;

#[path = "signal/children.rs"]
mod children;

#[path = "signal/waits.rs"]
mod waits;

#[path = "signal/fan_out.rs"]
mod fan_out;

#[cfg(feature = "postgres")]
#[path = "signal/inside.rs"]
mod inside;

#[path = "signal/versions.rs"]
mod versions;
