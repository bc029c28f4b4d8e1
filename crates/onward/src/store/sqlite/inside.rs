//! Starting a run, and sending a signal, inside a transaction of the user's own.
//!
//! Owns: the check that a connection is to the store's file and has a transaction open, and the
//! savepoint around the write. Never begins or commits: what is written is there when, and if, the
//! user commits. Workers learn of it as of any other connection's commit, by the writer's look at the
//! file; within a transactional step's body, by the commit of that step.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use rusqlite::Connection;

use super::fault::Fault;
use super::tx::{Changes, Tx};
use super::{open, signal, start, sweep};
use crate::store::{Error as StoreError, NewRun, NewSignal, Signalled, Started, StartedHow};
use crate::{Code, Error, Timestamp};

thread_local! {
    /// What the body that this thread executes has changed so, while it executes one.
    static CHANGED: RefCell<Option<Changes>> = const { RefCell::new(None) };
}

/// Starts a run on a user's connection, at this time of the store's clock. Children of a run that it replaces
/// are asked to end in the same transaction: whoever learns of the commit does not look for them. It is one
/// batch, since nobody else writes meanwhile; who ends one of them, or the next sweep, asks the others.
pub(crate) fn start_inside(
    conn: &Connection,
    file: &Path,
    now: Timestamp,
    new: &NewRun,
) -> Result<Started, Error> {
    inside(conn, file, now, |tx| {
        let started = start::start_one(tx, new)?;
        if let StartedHow::Replaced(_) = started.how {
            sweep::cascade(tx)?;
        }
        Ok(started)
    })
}

/// Sends a signal on a user's connection, at this time of the store's clock.
pub(crate) fn signal_inside(
    conn: &Connection,
    file: &Path,
    now: Timestamp,
    new: &NewSignal,
) -> Result<Signalled, Error> {
    inside(conn, file, now, |tx| signal::signal(tx, new))
}

fn inside<T>(
    conn: &Connection,
    file: &Path,
    now: Timestamp,
    write: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>,
) -> Result<T, Error> {
    check(conn, file)?;
    let mut tx = Tx::new(conn, now);
    let written = in_savepoint(conn, || write(&mut tx));
    CHANGED.with_borrow_mut(|all| {
        if let Some(all) = all {
            all.add(tx.into_changes());
        }
    });
    Ok(written.map_err(StoreError::from)?)
}

/// Executes a body on this thread, and collects what it changes so in its own transaction.
pub(super) fn collecting<T>(body: impl FnOnce() -> T) -> (T, Changes) {
    CHANGED.set(Some(Changes::default()));
    let result = body();
    (result, CHANGED.take().unwrap_or_default())
}

fn check(conn: &Connection, file: &Path) -> Result<(), Error> {
    let other = |about: String| Err(Error::new(Code::OtherDatabase).about(about));
    let theirs = conn.path().unwrap_or_default();
    let same = fs::canonicalize(theirs).is_ok_and(|theirs| theirs == file);
    if !same {
        return other(format!("it is to {theirs:?}, and the store's file is {}", file.display()));
    }
    if conn.is_autocommit() {
        return Err(Error::new(Code::NoTransaction));
    }
    lock(conn)?;
    if !open::is_current(conn).map_err(StoreError::from)? {
        return other(format!("{theirs:?} lacks the tables of this version"));
    }
    Ok(())
}

/// Takes the write lock before anything is read: whoever has read first cannot wait for it, and has lost if
/// somebody else has written since. A file without the tables is found out by who looks at them.
fn lock(conn: &Connection) -> Result<(), Error> {
    match conn.execute(include_str!("sql/schema_write.sql"), []).map_err(Fault::from) {
        Err(fault) if fault.is_locked() => Err(Error::from(StoreError::from(fault)).about(
            "the transaction cannot get the write lock; begin it with \"begin immediate\" \
             (TransactionBehavior::Immediate)",
        )),
        _ => Ok(()),
    }
}

/// Undoes what a write that failed half-way has written, and nothing of the user's. A refused one
/// has written at most that it was refused.
fn in_savepoint<T>(
    conn: &Connection,
    write: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    conn.execute_batch("savepoint onward_start")?;
    let written = write();
    let kept = matches!(written, Ok(_) | Err(Fault::Refused(_)));
    if !conn.is_autocommit() {
        let undo = if kept { "" } else { "rollback to onward_start;" };
        conn.execute_batch(&format!("{undo} release onward_start"))?;
    }
    written
}
