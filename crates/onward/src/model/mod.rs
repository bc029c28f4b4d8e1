//! The nouns: runs, their records, the ids of steps, queues and schedules.
//!
//! Owns: what a store keeps and a client shows, as plain data. Never touches a store.

mod note;
mod queue;
mod record;
mod run;
pub(crate) mod schedule;
pub(crate) mod step_id;
pub(crate) mod undo;

pub use note::{LogLine, Noted, Notes, Origin, RunProgress, Seed};
pub use queue::{Queue, QueueCounts, QueueLimits, QueueUse, Rate};
pub use record::{Entry, Record, RecordKind};
pub use run::{CodeChange, OnConflict, Parent, Run, RunState, Waits};
pub use schedule::{CatchUp, LatestRun, Overlap, Schedule, ScheduleSpec};
pub use undo::Undoing;
