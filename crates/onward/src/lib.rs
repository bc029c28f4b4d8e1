//! Retry-safe, durable workflows: every step you finish stays finished.
//!
//! You write an ordinary async function. The result of each step is recorded before the next
//! begins, so after a crash, a deploy, a dropped connection or a retry the run goes on where it
//! stopped. Keys keep the same request from happening twice.
//!
//! ```
//! use onward::{Ctx, Failure, Onward, Workflow};
//!
//! const SHOUT: Workflow<String, String> = Workflow::named("shout");
//!
//! async fn shout(ctx: Ctx, text: String) -> Result<String, Failure> {
//!     let loud = ctx.step("upper", async |_| Ok::<_, Failure>(text.to_uppercase())).await?;
//!     ctx.step("mark", async |_| Ok::<_, Failure>(format!("{loud}!"))).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", dir.path().join("onward.db").display());
//! let onward = Onward::open(&url).await?; // "sqlite:onward.db"
//! let worker = onward.worker().serve(SHOUT, shout).start().await?;
//! let run = onward.start(SHOUT, &"hello".to_owned()).key("greeting-1").await?;
//! assert_eq!(run.result().await?, "HELLO!");
//! worker.shutdown().await?;
//! # Ok(()) }
//! ```
//!
//! One run, followed once: [`Onward::start`] → [`store`] → [`Worker`] claims → the driver polls
//! the workflow function → [`Ctx::step`] → the store records → the driver settles →
//! [`RunHandle::result`]. The modules are declared in three groups: those that a run goes through, the
//! store, and what both are made of.

mod client;
mod ctx;
mod driver;
mod ending;
mod keyed;
mod trace;
mod upkeep;
mod waiting;
mod watch;
mod why;
mod worker;

pub mod store;

mod clock;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod failpoint;
mod failure;
mod id;
mod json;
mod key;
pub mod limits;
mod model;
mod retry;
#[cfg(feature = "schedules")]
mod schedule;
mod test_clock;
#[cfg(feature = "testing")]
pub mod testing;
mod workflow;

#[cfg(feature = "schedules")]
pub use client::{Backfill, Backfilled, ScheduleHandle, ScheduleSetup, ScheduleStart};
pub use client::{
    Copied, CopyProgress, CopyTo, ForkRun, Held, Matching, Once, Onward, Open, Progress,
    QueueHandle, QueueSetup, Refusal, RunHandle, SendSignal, Start, StartMany, StartedMany,
    SteerFailure, SteerMany, Steered,
};
pub use clock::{Clock, SystemClock, Timestamp};
pub use ctx::{
    All, AllResults, Callback, CallbackFuture, Child, ChildResult, ChildStarted, Ctx, SignalFuture,
    SignalWithin, Sleep, StartChild, Step, StepFuture, TransactionFuture,
};
pub use error::{Code, Error};
pub use failure::{Failure, FailureData};
pub use id::{AuditId, RunId, Uuid, WorkerId};
pub use json::{Fingerprint, Json};
pub use key::Key;
pub use model::{
    CatchUp, CodeChange, Entry, LatestRun, LogLine, Noted, Notes, OnConflict, Origin, Overlap,
    Parent, Queue, QueueCounts, QueueLimits, QueueUse, Rate, Record, RecordKind, Run, RunProgress,
    RunState, Schedule, ScheduleSpec, Seed, Undoing, Waits,
};
pub use retry::Retry;
pub use store::{
    Duplicate, Duplicates, Filter, KeyState, Occurred, Prune, Query, QueuePage, RunPage,
    SchedulePage, Stats, StepKey, StepKeyPage, WorkerInfo,
};
pub use test_clock::TestClock;
pub use why::{Around, Why, why};
pub use worker::{Worker, WorkerBuilder};
pub use workflow::Workflow;

/// The SQLite binding that the store is built on, so that a program's own SQL, in
/// [`Ctx::sqlite_transaction`] and [`Start::in_sqlite`], is of the same version.
#[cfg(feature = "sqlite")]
pub use rusqlite;
#[cfg(feature = "postgres")]
pub use tokio_postgres;

#[cfg(all(doctest, feature = "schedules"))]
#[doc = include_str!("../../../docs/schedules.md")]
mod schedules {}

#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/testing.md")]
mod testing_page {}

#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/mistakes.md")]
mod mistakes_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/keys.md")]
mod keys_page {}

#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../docs/transactions.md")]
mod transactions_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/signals.md")]
mod signals_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/children.md")]
mod children_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/versions.md")]
mod versions_page {}

#[cfg(all(doctest, feature = "schedules", feature = "testing"))]
#[doc = include_str!("../../../docs/cookbook.md")]
mod cookbook_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/steering.md")]
mod steering_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/undo.md")]
mod undo_page {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/queues.md")]
mod queues_page {}

#[cfg(all(doctest, feature = "compression", feature = "encryption"))]
#[doc = include_str!("../../../docs/payloads.md")]
mod payloads_page {}
