//! What goes wrong inside a transaction, and what that means for its neighbours.
//!
//! Owns: the table from SQLite's result codes to the store's errors. Never decides what a caller
//! does about it.

use std::error::Error as StdError;
use std::fmt;

use rusqlite::ErrorCode;

use crate::store::{Error, Outage};

/// Why a verb did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The verb refused before it wrote anything: its neighbours are not concerned.
    Refused(Error),
    /// The database does not take writes: nobody's write in this transaction is kept.
    Outage(Outage, String),
    /// This write or the rows it met are bad: it alone is undone.
    Data(Box<dyn StdError + Send + Sync>),
    /// A user's body ended the transaction, and its neighbours' writes went with it. It has its
    /// answer and writes nothing when it is applied again, as all of them are.
    Ended,
    /// The commit was refused for what a user's body left, as a deferred foreign key. It is not
    /// known whose.
    Uncommitted(Uncommitted),
}

/// A commit that was refused for what is in it.
#[derive(Clone, Debug)]
pub(super) struct Uncommitted(pub(super) String);

impl fmt::Display for Uncommitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Uncommitted {}

impl Fault {
    /// A stored value that cannot be read.
    pub(super) fn data(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Fault::Data(source.into())
    }

    /// Somebody else is to write first.
    pub(super) fn locked(why: &str) -> Self {
        Fault::Outage(Outage::Locked, why.to_owned())
    }

    pub(super) fn is_locked(&self) -> bool {
        matches!(self, Fault::Outage(Outage::Locked, _))
    }

    /// Whether an index refused a row.
    pub(super) fn is_constraint(error: &rusqlite::Error) -> bool {
        error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code().and_then(outage) {
            Some(outage) => Fault::Outage(outage, error.to_string()),
            None => Fault::Data(Box::new(error)),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Outage(outage, source) => Error::Unavailable(outage, source.into()),
            Fault::Data(source) => Error::Corrupt(source),
            Fault::Ended => Error::Unavailable(Outage::NoAnswer, "undone by a neighbour".into()),
            Fault::Uncommitted(refused) => Error::Corrupt(Box::new(refused)),
        }
    }
}

/// The outage that a result code tells of; `None` when the data is at fault.
fn outage(code: ErrorCode) -> Option<Outage> {
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Some(Outage::Locked),
        ErrorCode::DiskFull => Some(Outage::Full),
        ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
            Some(Outage::ReadOnly)
        }
        ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::FileLockingProtocolFailed => Some(Outage::NoAnswer),
        _ => None,
    }
}
