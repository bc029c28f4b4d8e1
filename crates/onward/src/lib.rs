//! Retry-safe, durable workflows: every step you finish stays finished.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
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
pub mod store;

pub use clock::{Clock, SystemClock, TestClock, Timestamp};
pub use error::{Code, Error};
pub use failure::{Failure, FailureData};
pub use id::{RunId, Uuid, WorkerId};
pub use json::{Fingerprint, Json};
pub use key::Key;
pub use model::{Entry, OnConflict, Record, RecordKind, Run, RunState, Waits};
pub use retry::Retry;
