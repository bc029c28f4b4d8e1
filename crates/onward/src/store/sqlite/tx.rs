//! One transaction of the writer, as the verbs see it.
//!
//! Owns: its time, the fence as far as it was read, and whom to wake after the commit. Never
//! begins or commits; that is the writer's.

use std::cell::Cell;

use rusqlite::{Connection, Params};

use super::fault::Fault;
use super::row::{self, Row};
use crate::limits::COMMIT_BYTES_MAX;
use crate::store::{Error, Hub, Topic};
use crate::{RunId, Timestamp, WorkerId};

/// A transaction that is open on the writer's connection.
pub(super) struct Tx<'c> {
    pub(super) conn: &'c Connection,
    /// The time of everything in this transaction.
    pub(super) now: Timestamp,
    /// Whether each worker met so far is lost. No other process can change it before the commit.
    lost: Vec<(WorkerId, bool)>,
    changes: Changes,
    /// Bytes of payload that were written so far.
    bytes: Cell<usize>,
}

/// What waiters look at again after the commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    work: bool,
    schedules: bool,
    runs: Vec<RunId>,
}

impl<'c> Tx<'c> {
    pub(super) fn new(conn: &'c Connection, now: Timestamp) -> Self {
        Self { conn, now, lost: Vec::new(), changes: Changes::default(), bytes: Cell::new(0) }
    }

    /// Writes with a statement that is kept prepared.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, Fault> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    /// Counts a payload that was written.
    pub(super) fn wrote(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Whether so much was written that nobody else's write belongs into the same commit.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.get() > COMMIT_BYTES_MAX
    }

    /// Whether a query finds any row.
    pub(super) fn exists(&self, sql: &str, params: impl Params) -> Result<bool, Fault> {
        Ok(row::first(self.conn, sql, params, |_| Ok(()))?.is_some())
    }

    /// The run with this id.
    pub(super) fn row(&self, run: RunId) -> Result<Row, Fault> {
        Ok(row::by_id(self.conn, run)?.ok_or(Error::NotFound)?)
    }

    /// Whether a worker's leases count for nothing. Read once per worker and transaction.
    pub(super) fn is_lost(&mut self, worker: WorkerId) -> Result<bool, Fault> {
        if let Some((_, lost)) = self.lost.iter().find(|(id, _)| *id == worker) {
            return Ok(*lost);
        }
        let sql = include_str!("sql/worker_lost.sql");
        let id = row::worker_blob(worker);
        let lost = row::first(self.conn, sql, [id], |row| Ok(row.get(0)?))?.unwrap_or(true);
        self.lost.push((worker, lost));
        Ok(lost)
    }

    /// Does what touches another run's row, so that one that cannot be read harms only itself: then nothing of
    /// it is done, and the rest goes on. Says whether it was done.
    pub(super) fn apart(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        self.conn.prepare_cached("savepoint apart")?.execute([])?;
        let done = write(self);
        if let Err(Fault::Data(source)) = &done {
            tracing::warn!(%source, "a row that cannot be read is passed over");
            self.conn.prepare_cached("rollback to apart")?.execute([])?;
        }
        self.conn.prepare_cached("release apart")?.execute([])?;
        match done {
            Err(Fault::Data(_)) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Forgets what was read of the fence, because this transaction moves it.
    pub(super) fn fence_moved(&mut self) {
        self.lost.clear();
    }

    /// Whoever waits for this run looks again after the commit: its state may have changed.
    pub(super) fn changed(&mut self, run: RunId) {
        self.changes.runs.push(run);
    }

    /// Whoever waits for work looks again after the commit: a run is queued, or wakes at a time
    /// that no worker knows yet, or is marked.
    pub(super) fn work(&mut self) {
        self.changes.work = true;
    }

    /// Whoever waits for schedules looks again after the commit: one may come sooner.
    pub(super) fn scheduled(&mut self) {
        self.changes.schedules = true;
    }

    /// Whoever waits for what was changed inside a user's body looks again too.
    pub(super) fn changed_inside(&mut self, changes: Changes) {
        self.changes.add(changes);
    }

    pub(super) fn into_changes(self) -> Changes {
        self.changes
    }
}

impl Changes {
    pub(super) fn add(&mut self, more: Changes) {
        self.work |= more.work;
        self.schedules |= more.schedules;
        self.runs.extend(more.runs);
    }

    pub(super) fn tell(self, hub: &Hub) {
        if self.work {
            hub.notify(Topic::Work);
        }
        if self.schedules {
            hub.notify(Topic::Schedules);
        }
        self.runs.into_iter().for_each(|run| hub.notify(Topic::Run(run)));
    }
}
