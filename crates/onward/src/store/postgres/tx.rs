//! Statements and transactions, as the verbs see them.
//!
//! Owns: the time of a transaction, its last word about the lease, and whom to wake after it.
//! Never holds the fence while it waits for its client: a transaction that was asked questions
//! takes it last, together with its commit.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row as PgRow};

use super::Shared;
use super::fault::{AGAIN_MAX, Fault};
use super::pool::Pooled;
use super::row::{self, Row, run_uuid, signed, small, worker_uuid};
use crate::store::{BoxFuture, Error, Hub, Topic};
use crate::{RunId, Timestamp, WorkerId};

/// A value to bind, with its type: a statement that says its types needs no preparation, which a
/// pooler would lose.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Begins a transaction that may wait for its client, but not for a dead one, and whose statements
/// each see what was committed before, as the fence needs it.
const BEGIN: &str = "begin isolation level read committed; \
                     set local idle_in_transaction_session_timeout = '5s'; \
                     set local lock_timeout = '6s'; \
                     select onward.durable()";

/// As [`BEGIN`], for what a lane waits for: it waits for a stranger's lock no longer than a batch.
const BEGIN_IN_LANE: &str = "begin isolation level read committed; \
                             set local idle_in_transaction_session_timeout = '5s'; \
                             set local lock_timeout = '3s'; \
                             select onward.durable()";

/// Begins a transaction that sees one state of the database, and changes nothing.
const BEGIN_SNAPSHOT: &str = "begin isolation level repeatable read read only; \
    set local idle_in_transaction_session_timeout = '5s'";

/// Executes one statement within the store's time limit.
pub(super) async fn query(
    shared: &Shared,
    client: &Client,
    sql: &'static str,
    params: &[Param<'_>],
) -> Result<Vec<PgRow>, Fault> {
    let text = shared.sql.text(sql);
    limited(shared, client.query_typed(&text, params)).await
}

/// Waits for an answer, but not for ever.
pub(super) async fn limited<T>(
    shared: &Shared,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(shared.timeout, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Fault::no_answer(format!("no answer within {:?}", shared.timeout))),
    }
}

/// A connection that executes single statements, each its own transaction.
pub(super) struct Session {
    shared: Arc<Shared>,
    conn: Pooled,
}

impl Session {
    pub(super) async fn open(shared: &Arc<Shared>) -> Result<Self, Fault> {
        Ok(Self { shared: Arc::clone(shared), conn: shared.pool.get().await? })
    }

    /// For what must not wait behind others: the lease.
    pub(super) async fn vital(shared: &Arc<Shared>) -> Result<Self, Fault> {
        Ok(Self { shared: Arc::clone(shared), conn: shared.vital.get().await? })
    }

    /// For notifications, which must not wait for the bodies of transactional steps.
    pub(super) async fn hint(shared: &Arc<Shared>) -> Result<Self, Fault> {
        Ok(Self { shared: Arc::clone(shared), conn: shared.hints.get().await? })
    }

    /// Executes a statement, again when it lost against another transaction.
    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<PgRow>, Fault> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.conn.is_clean = false;
            let rows = query(&self.shared, &self.conn, sql, params).await;
            // An answered statement leaves nothing behind, even a refused one.
            self.conn.is_clean = !matches!(rows, Err(Fault::Outage(..)));
            match rows {
                Err(Fault::Again(_)) if tries < AGAIN_MAX => {}
                rows => return rows,
            }
        }
    }

    pub(super) async fn first(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<PgRow>, Fault> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// The database's own time: this process may have measured it long ago.
    pub(super) async fn now(&mut self) -> Result<Timestamp, Fault> {
        let given = self.shared.clock.given();
        let row = self.first(include_str!("sql/time.sql"), &[(&given, Type::INT8)]).await?;
        let now = row.map(|row| row.try_get(0)).transpose().map_err(Fault::data)?;
        Ok(Timestamp::from_millis(now.unwrap_or_default()))
    }

    /// Executes a statement that was put together, and only reads.
    pub(super) async fn read_written(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<PgRow>, Fault> {
        let text = self.shared.sql.written(sql);
        self.conn.is_clean = false;
        let rows = limited(&self.shared, self.conn.query_typed(&text, params)).await;
        self.conn.is_clean = !matches!(rows, Err(Fault::Outage(..)));
        rows
    }
}

/// What waiters look at again after the commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) work: bool,
    pub(super) schedules: bool,
    pub(super) runs: Vec<RunId>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        !self.work && !self.schedules && self.runs.is_empty()
    }

    pub(super) fn tell(&self, hub: &Hub) {
        if self.work {
            hub.notify(Topic::Work);
        }
        if self.schedules {
            hub.notify(Topic::Schedules);
        }
        self.runs.iter().for_each(|run| hub.notify(Topic::Run(*run)));
    }
}

/// A transaction that asks its client questions.
pub(super) struct Tx {
    pub(super) shared: Arc<Shared>,
    conn: Pooled,
    /// The time of everything in this transaction.
    pub(super) now: Timestamp,
    /// The worker whose lease this transaction stands on.
    guard: Option<WorkerId>,
    changes: Changes,
}

/// Executes `verb` in a transaction, again when it lost against another.
pub(super) async fn transact<T>(
    shared: &Arc<Shared>,
    verb: impl for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Fault>>,
) -> Result<T, Fault> {
    again(shared, BEGIN, verb).await
}

/// As [`transact`], for what others in its lane wait for.
pub(super) async fn transact_in_lane<T>(
    shared: &Arc<Shared>,
    verb: impl for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Fault>>,
) -> Result<T, Fault> {
    again(shared, BEGIN_IN_LANE, verb).await
}

async fn again<T>(
    shared: &Arc<Shared>,
    begin: &'static str,
    verb: impl for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut tries = 0;
    loop {
        tries += 1;
        match once(shared, begin, &verb).await {
            Err(fault @ (Fault::Again(_) | Fault::OneByOne)) if tries < AGAIN_MAX => {
                tracing::debug!(?fault, "a transaction lost against another; again");
            }
            answer => return answer,
        }
    }
}

/// Executes `verb` on one state of the database.
pub(super) async fn snapshot<T>(
    shared: &Arc<Shared>,
    verb: impl for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Fault>>,
) -> Result<T, Fault> {
    once(shared, BEGIN_SNAPSHOT, &verb).await
}

async fn once<T>(
    shared: &Arc<Shared>,
    begin: &'static str,
    verb: &impl for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut tx = Tx::begin(shared, begin).await?;
    match verb(&mut tx).await {
        Ok(answer) => {
            tx.commit().await?;
            Ok(answer)
        }
        // A refusal may have written what tells of it, such as a suppressed duplicate.
        Err(Fault::Refused(error)) if !matches!(error, Error::LeaseLost) => {
            tx.commit().await?;
            Err(Fault::Refused(error))
        }
        Err(fault) => {
            tx.roll_back().await;
            Err(fault)
        }
    }
}

/// Nothing has gone wrong in the transaction: the row came, and is not one.
fn readable(run: RunId, found: Result<Option<Row>, Fault>) -> Result<Option<Row>, Fault> {
    match found {
        Err(Fault::Data(source)) => {
            tracing::warn!(%run, %source, "a run that cannot be read is passed over");
            Ok(None)
        }
        found => found,
    }
}

impl Tx {
    async fn begin(shared: &Arc<Shared>, begin: &'static str) -> Result<Self, Fault> {
        let mut conn = shared.pool.get().await?;
        conn.is_clean = false;
        let given = shared.clock.given();
        let sql = include_str!("sql/time.sql");
        let params: [Param<'_>; 1] = [(&given, Type::INT8)];
        let begin = shared.sql.text(begin);
        let (began, now) = tokio::join!(
            limited(shared, conn.batch_execute(&begin)),
            query(shared, &conn, sql, &params)
        );
        began?;
        let now = now?.first().map(|row| row.try_get(0)).transpose().map_err(Fault::data)?;
        let now = Timestamp::from_millis(now.unwrap_or_default());
        Ok(Self { shared: Arc::clone(shared), conn, now, guard: None, changes: Changes::default() })
    }

    async fn commit(mut self) -> Result<(), Fault> {
        match self.guard {
            None => limited(&self.shared, self.conn.batch_execute("commit")).await?,
            Some(worker) => {
                let worker = worker_uuid(worker);
                let params: [Param<'_>; 1] = [(&worker, Type::UUID)];
                let sql = include_str!("sql/assert_live.sql");
                let (live, committed) = tokio::join!(
                    query(&self.shared, &self.conn, sql, &params),
                    limited(&self.shared, self.conn.batch_execute("commit"))
                );
                self.conn.is_clean = committed.is_ok();
                // Refused, the transaction was undone: its commit is none.
                live?;
                committed?;
            }
        }
        self.conn.is_clean = true;
        self.shared.tell(std::mem::take(&mut self.changes));
        Ok(())
    }

    async fn roll_back(mut self) {
        let rolled_back = limited(&self.shared, self.conn.batch_execute("rollback")).await;
        self.conn.is_clean = rolled_back.is_ok();
    }

    pub(super) async fn rows(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<PgRow>, Fault> {
        query(&self.shared, &self.conn, sql, params).await
    }

    pub(super) async fn first(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<PgRow>, Fault> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// Whether a query finds any row.
    pub(super) async fn exists(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<bool, Fault> {
        Ok(!self.rows(sql, params).await?.is_empty())
    }

    /// The run with this id, as it is now: whoever holds its lock may be about to change it.
    pub(super) async fn read(&self, run: RunId) -> Result<Option<Row>, Fault> {
        let id = run_uuid(run);
        let found = self.first(row::RUN_BY_ID, &[(&id, Type::UUID)]).await?;
        found.as_ref().map(row::row).transpose()
    }

    /// The run with this id, locked until the transaction ends.
    pub(super) async fn locked(&self, run: RunId) -> Result<Option<Row>, Fault> {
        let id = run_uuid(run);
        let found = self.first(row::RUN_LOCKED, &[(&id, Type::UUID)]).await?;
        found.as_ref().map(row::row).transpose()
    }

    /// As `locked`, for what is done about another run: one that cannot be read counts as none, so that it
    /// harms only itself.
    pub(super) async fn locked_readable(&self, run: RunId) -> Result<Option<Row>, Fault> {
        readable(run, self.locked(run).await)
    }

    /// As `read`, for what is done about another run.
    pub(super) async fn read_readable(&self, run: RunId) -> Result<Option<Row>, Fault> {
        readable(run, self.read(run).await)
    }

    /// Writes a locked run back.
    pub(super) async fn save(&self, row: &Row) -> Result<(), Fault> {
        let run = &row.run;
        let waits_for = run.waits_for.as_ref().map(row::json_text).transpose()?;
        let code_change = run.code_change.as_ref().map(row::json_text).transpose()?;
        let builds = row::builds_column(run)?;
        let time = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
        let params: [Param<'_>; 25] = [
            (&run_uuid(run.id), Type::UUID),
            (&run.state.as_str(), Type::TEXT),
            (&small(run.attempt), Type::INT4),
            (&run.worker.map(worker_uuid), Type::UUID),
            (&row.ticket, Type::INT8),
            (&signed(run.wakes), Type::INT8),
            (&small(run.crashes), Type::INT4),
            (&time(run.due_at), Type::INT8),
            (&time(run.cancel_at), Type::INT8),
            (&time(run.finished_at), Type::INT8),
            (&run.build, Type::TEXT),
            (&run.successor.map(run_uuid), Type::UUID),
            (&waits_for, Type::TEXT),
            (&row::stuck_column(run.waits_for.as_ref()), Type::TEXT),
            (&builds, Type::TEXT),
            (&time(run.started_at), Type::INT8),
            (&time(run.deadline_at), Type::INT8),
            (&time(run.retried_at), Type::INT8),
            (&row.failed_step, Type::TEXT),
            (&signed(run.duplicates), Type::INT8),
            (&run.continued_as.map(run_uuid), Type::UUID),
            (&code_change, Type::TEXT),
            (&time(run.paused_at), Type::INT8),
            (&run.paused_by, Type::TEXT),
            (&row::notes_column(run)?, Type::TEXT),
        ];
        self.rows(include_str!("sql/run_save.sql"), &params).await?;
        Ok(())
    }

    /// Whether a worker's leases count for nothing, as far as can be seen. The last word is
    /// [`guard`](Tx::guard)'s.
    pub(super) async fn is_lost(&self, worker: WorkerId) -> Result<bool, Fault> {
        let worker = worker_uuid(worker);
        let params: [Param<'_>; 1] = [(&worker, Type::UUID)];
        match self.first(include_str!("sql/worker_lost.sql"), &params).await? {
            Some(row) => row.try_get(0).map_err(Fault::data),
            None => Ok(true),
        }
    }

    /// Lets the commit stand on this worker's lease.
    pub(super) fn guard(&mut self, worker: WorkerId) {
        self.guard = Some(worker);
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
}
