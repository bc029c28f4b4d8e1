//! A transactional step, as a store is asked to execute it.
//!
//! Owns: [`Transact`], what a store is given, and [`Transacted`], what it answers. Never knows
//! what a body does: that is the user's, written for one kind of store.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Lease, RecordRef};
use crate::{Code, Failure, Json, Record};

/// One try of a transactional step: its body and its record, in one transaction.
#[derive(Clone)]
pub struct Transact {
    /// The lease under which it executes.
    pub lease: Lease,
    /// The latest records that the store has acknowledged, as in [`Append`](super::Append).
    pub follows: Vec<RecordRef>,
    /// The step, as its record names it.
    pub step: Arc<str>,
    /// What it does.
    pub body: TransactionBody,
    /// Where its record gets its number from.
    pub place: Arc<dyn Place>,
    /// How long the body may take.
    pub time_max: Duration,
}

/// The body of a transactional step, of a type that one kind of store knows and executes.
#[derive(Clone)]
pub struct TransactionBody {
    kind: &'static str,
    body: Arc<dyn Any + Send + Sync>,
}

/// A body that executes on the connection of a SQLite store that writes.
#[cfg(feature = "sqlite")]
pub type SqliteBody = Arc<dyn Fn(&rusqlite::Connection) -> Result<Json, Failure> + Send + Sync>;

impl TransactionBody {
    /// A body, and what kind of transaction it is, for people.
    pub fn new<B: Any + Send + Sync>(kind: &'static str, body: B) -> Self {
        Self { kind, body: Arc::new(body) }
    }

    /// The body for a SQLite store.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(body: SqliteBody) -> Self {
        Self::new("a SQLite transaction", body)
    }

    /// The body for a Postgres store.
    #[cfg(feature = "postgres")]
    pub fn postgres(body: PostgresBody) -> Self {
        Self::new("a Postgres transaction", body)
    }

    /// The body, if it is of this type.
    pub fn get<B: Any>(&self) -> Option<&B> {
        self.body.downcast_ref()
    }

    /// What a store answers that does not know its type.
    pub fn refused(&self) -> Transacted {
        let message = format!("{}: {}", self.kind, Code::TransactionUnsupported.advice());
        Transacted::Failed(Failure::engine(Code::TransactionUnsupported, message))
    }
}

/// A body that executes in a transaction of a Postgres store.
#[cfg(feature = "postgres")]
pub type PostgresBody = Arc<
    dyn Fn(super::PostgresTransaction) -> super::BoxFuture<'static, Result<Json, Failure>>
        + Send
        + Sync
        + 'static,
>;

/// Gives the record of a transactional step its place in the run's history.
///
/// The number is taken when the body has ended, and until the store's answer is known no result
/// with a higher number is delivered.
pub trait Place: Send + Sync + 'static {
    /// Whether somebody still waits for the step. Ask before the body begins.
    fn is_wanted(&self) -> bool;

    /// The record of this result. Call it when the body has ended, inside the transaction, and
    /// insert what it gives; `None` says that nobody waits any more and the transaction is to be
    /// rolled back. Called again for a body that had to be executed again, it gives the same
    /// number.
    fn place(&self, result: Json) -> Option<Record>;
}

/// What became of a transactional step's try.
#[derive(Clone, Debug, PartialEq)]
pub enum Transacted {
    /// This record ends the step, and what the body wrote is committed with it: by this call or
    /// by an earlier one whose answer was lost.
    Recorded(Record),
    /// The body failed, and nothing that it wrote is kept.
    Failed(Failure),
    /// Nobody waits for the step any more, and nothing that it wrote is kept.
    Unwanted,
}

impl fmt::Debug for TransactionBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }
}

impl fmt::Debug for Transact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Transact");
        all.field("lease", &self.lease).field("step", &self.step).field("body", &self.body);
        all.finish_non_exhaustive()
    }
}
