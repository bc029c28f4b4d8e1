//! Onward on Postgres under faults: each fault by itself, and all of them in a storm.
//!
//! Owns: what callers, workers and the order of commits must be like then, and the proofs that the
//! checks, the bank and the proxy themselves work.
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod bank;
mod faults;
mod proxy;
mod storm;
