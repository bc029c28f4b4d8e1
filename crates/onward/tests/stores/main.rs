//! The stores beside each other: what each of them must do, and where they would differ.
//!
//! Owns: the conformance suite on the stores of this crate, random stories on two of them, copies from
//! one to another, and what is particular to SQLite. What is particular to Postgres is in
//! `tests/postgres`.
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "../support/database.rs"]
mod database;
#[path = "../support/harness.rs"]
mod harness;
#[path = "../support/seat.rs"]
mod seat;

mod bad_row;
mod conformance;
mod copy;
mod differential;

mod sqlite_bounds;
mod sqlite_store;
mod transaction_store;
