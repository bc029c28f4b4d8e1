//! Schedules: when they come, what is due, and firing it.
//!
//! Owns: the times. `times` and `cron` compute them, `plan` says which of them to start a run for,
//! `firing` has the store do that, from any worker. Never keeps anything: the store's next time is the
//! truth.

mod cron;
mod firing;
mod plan;
mod times;

pub(crate) use firing::{fire_due, keep_firing, occurrence};
pub(crate) use times::Times;
