//! Tests of Onward on Postgres under faults.
//!
//! [`proxy`] stands between a store and its server and makes the connection fail; [`server`] is a
//! Postgres that a test may stop and kill. [`play`] puts both into one long story: worker processes
//! ([`crew`]) serve runs, which many clients start ([`starting`]), while a [`storm`] goes over them.
//! At its end the store, what the step bodies did, the order of all commits ([`audit`]) and the
//! accounts of a [`bank`] must agree. That they would not with a broken [`fence`], a test shows.

pub mod audit;
pub mod bank;
pub mod crew;
pub mod fence;
pub mod play;
pub mod proxy;
pub mod server;
pub mod starting;
pub mod storm;
