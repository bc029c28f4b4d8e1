//! The nouns: runs, their records, and the ids of steps.
//!
//! Owns: what a store keeps and a client shows, as plain data. Never touches a store.

mod record;
mod run;
pub(crate) mod step_id;

pub use record::{Entry, Record, RecordKind};
pub use run::{CodeChange, OnConflict, Parent, Run, RunState, Waits};
