//! The server as its users meet it: a real port, a real file, and bytes of HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

#[path = "http/callbacks.rs"]
mod callbacks;
#[path = "http/dashboard.rs"]
mod dashboard;
#[path = "http/keys.rs"]
mod keys;
#[path = "http/mounted.rs"]
mod mounted;
#[path = "http/operations.rs"]
mod operations;
#[path = "http/queues.rs"]
mod queues;
#[path = "http/runs.rs"]
mod runs;
#[path = "http/schedules.rs"]
mod schedules;
#[path = "http/schema.rs"]
mod schema;
#[path = "http/security.rs"]
mod security;
#[path = "http/stage.rs"]
mod stage;
#[path = "http/start.rs"]
mod start;
#[path = "http/stream.rs"]
mod stream;
#[path = "http/sweep.rs"]
mod sweep;
