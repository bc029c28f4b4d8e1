//! Steering runs through the public face, on each store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

#[cfg(feature = "postgres")]
#[path = "database/mod.rs"]
mod database;

#[path = "signal/stores.rs"]
mod stores;

#[path = "execution/process.rs"]
mod process;

#[path = "steer/pause.rs"]
mod pause;

#[path = "steer/fork.rs"]
mod fork;

#[path = "steer/many.rs"]
mod many;

#[path = "steer/note.rs"]
mod note;

#[path = "steer/family.rs"]
mod family;
