//! The engine through its public face: how runs are started, executed, replayed, steered and ended.
//!
//! Owns: what a user of the library sees, on whichever store. What every store must do, and what is
//! particular to one of them, is in `tests/stores` and `tests/postgres`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

#[path = "../support/database.rs"]
mod database;
#[path = "../support/relaunch.rs"]
mod relaunch;

mod bank;
mod listener;
mod process;
mod stores;

mod begin;
mod branches;
mod engine;
mod execution;
mod replay;

mod signal;
mod steer;
mod step_key;
mod undo;

mod pairs;

mod transaction;
mod transactional_start;

mod queues;
mod schedules;

mod faults;
mod held;
mod last_body;
mod last_poll;
mod limits;
mod runtime;
mod suspect;
mod went_back;

mod payloads;
mod trace;

mod examples;
mod guide;
mod testing;
