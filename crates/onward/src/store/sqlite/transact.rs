//! Transactional steps: a user's writes and the step's record, in one savepoint of a commit.
//!
//! Owns: the order of the checks, the body's execution, and undoing it alone. Never begins or
//! commits. The writer holds the file's write lock from before the check of the fence until after
//! the commit, so what is true of the fence before the body is true of it at the commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::fault::{Fault, Uncommitted};
use super::guard::{Guard, Left};
use super::inside;
use super::record::{self, holds};
use super::row::{self, run_blob};
use super::tx::Tx;
use crate::store::{Error, SqliteBody, Transact, Transacted};
use crate::{Code, Failure, Json, Record, failpoint};

/// A transaction that is to be executed, and its failure once it has failed: a write may be
/// applied again for its neighbours' sake, and a body that failed is not executed again for that.
pub(super) struct Execution {
    transact: Transact,
    guard: Arc<Guard>,
    failed: Option<Failure>,
}

impl Execution {
    pub(super) fn new(transact: Transact, guard: Arc<Guard>) -> Self {
        Self { transact, guard, failed: None }
    }

    /// Executes the body and adds the record, unless the record is there or the lease is lost.
    pub(super) fn execute(&mut self, tx: &mut Tx<'_>) -> Result<Transacted, Fault> {
        if let Some(failure) = &self.failed {
            return Ok(Transacted::Failed(failure.clone()));
        }
        let Transact { lease, step, body, place, .. } = &self.transact;
        let Some(body) = body.get::<SqliteBody>() else { return Ok(body.refused()) };
        let id = run_blob(lease.run);
        let held = row::first(tx.conn, include_str!("sql/record_fence.sql"), [id], |row| {
            Ok((row.get::<_, i64>(0)?, holds(row, *lease)?))
        })?;
        let Some((no, holds)) = held else { return Err(Error::LeaseLost.into()) };
        let sql = include_str!("sql/transact_record.sql");
        let recorded = row::first(tx.conn, sql, params![no, &**step], row::record)?;
        if let Some(record) = &recorded
            && record.attempt == lease.attempt
        {
            return Ok(Transacted::Recorded(record.clone()));
        }
        if !holds || tx.is_lost(lease.worker)? {
            return Err(Error::LeaseLost.into());
        }
        if let Some(record) = recorded {
            return Ok(Transacted::Recorded(record));
        }
        if !record::follows(tx, no, &self.transact.follows)? {
            return Err(Error::HistoryLost.into());
        }
        if !place.is_wanted() {
            return Ok(Transacted::Unwanted);
        }
        let body = Arc::clone(body);
        self.execute_body(tx, no, &body)
    }

    fn execute_body(
        &mut self,
        tx: &mut Tx<'_>,
        no: i64,
        body: &SqliteBody,
    ) -> Result<Transacted, Fault> {
        tx.conn.execute_batch("savepoint onward_body")?;
        let watch = self.guard.watch(self.transact.time_max);
        let (result, started) =
            inside::collecting(|| catch_unwind(AssertUnwindSafe(|| body(tx.conn))));
        let left = watch.left(tx.conn);
        let result = result.unwrap_or_else(|panic| Err(Failure::of_panic(panic)));
        match self.judge(result, left) {
            Ok(result) => {
                let Some(record) = self.transact.place.place(result) else {
                    undo(tx.conn)?;
                    return Ok(Transacted::Unwanted);
                };
                failpoint::hit("transact.before_record");
                self.keep(tx, no, &record)?;
                tx.changed_inside(started);
                Ok(Transacted::Recorded(record))
            }
            Err(failure) => {
                self.failed = Some(failure.clone());
                if left.ended {
                    return Err(Fault::Ended);
                }
                undo(tx.conn)?;
                Ok(Transacted::Failed(failure))
            }
        }
    }

    /// What a body's result counts for, after how it left. Its own failure says most about why
    /// the transaction is over.
    fn judge(&self, result: Result<Json, Failure>, left: Left) -> Result<Json, Failure> {
        let code = match (left, &result) {
            (Left { late: true, .. }, _) => Code::TransactionTimeout,
            (Left { ended: true, .. }, Ok(_)) => Code::TransactionEnded,
            _ => return result,
        };
        let Transact { lease, step, time_max, .. } = &self.transact;
        tracing::warn!(run = %lease.run, %step, %code, ?time_max, "a transaction is undone");
        Err(Failure::engine(code, format!("{} ({time_max:?} at most)", code.advice())))
    }

    fn keep(&self, tx: &mut Tx<'_>, no: i64, record: &Record) -> Result<(), Fault> {
        record::add(tx, self.transact.lease, no, std::slice::from_ref(record))?;
        tx.conn.execute_batch("release onward_body")?;
        Ok(())
    }
}

fn undo(conn: &Connection) -> Result<(), Fault> {
    Ok(conn.execute_batch("rollback to onward_body; release onward_body")?)
}

/// What the caller is told. A commit that was refused for what a body left, and for nobody
/// else's sake, is that body's failure.
pub(super) fn answer(answer: Result<Transacted, Error>) -> Result<Transacted, Error> {
    match answer {
        Err(Error::Corrupt(source)) if source.is::<Uncommitted>() => {
            Ok(Transacted::Failed(Failure::new(source)))
        }
        answer => answer,
    }
}
