//! Tests of Onward on Postgres under faults.
//!
//! [`proxy`] stands between a store and its server and makes the connection fail; [`server`] is a
//! Postgres that a test may stop and kill.

pub mod proxy;
pub mod server;
