//! The handlers, one file per noun: parse, one call of the library, answer.
//!
//! Owns: what each endpoint of the table does. Never decides who may: a request that comes here has
//! passed the guard.

pub(crate) mod audit;
pub(crate) mod codes;
pub(crate) mod errors;
pub(crate) mod export;
pub(crate) mod filter;
pub(crate) mod history;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod meta;
pub(crate) mod operations;
pub(crate) mod prune;
pub(crate) mod queues;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod steer;
pub(crate) mod step_keys;
pub(crate) mod steps;
pub(crate) mod waiting;
pub(crate) mod workers;
pub(crate) mod workflows;
