//! What needs a server: what is particular to the Postgres store, and step keys on Redis.
//!
//! Owns: schema, plans, connections, outages and transactions of Postgres. What every store must do is in
//! `tests/stores`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

#[path = "../support/database.rs"]
mod database;
#[path = "../support/harness.rs"]
mod harness;
#[path = "../support/relaunch.rs"]
mod relaunch;
#[path = "../support/seat.rs"]
mod seat;

mod postgres_store;
mod start_postgres;
mod transaction_postgres;

mod redis_keys;
