//! The real `onward` program: what it prints, what it leaves behind, and how it exits.
//!
//! Owns: every command as a user types it, on a store and over a server. What the store and the server
//! do then is tested in their own crates.
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod place;

mod commands;
#[cfg(feature = "server")]
mod refusals;
mod shell;

mod backfill;
mod copy;
mod doctor;
mod payloads;
mod queues;
mod schedules;
mod steer;
mod step_keys;

mod beside_worker;
#[cfg(feature = "server")]
mod over_server;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod tls;

mod demo;
mod new;
#[cfg(feature = "server")]
mod readme;
