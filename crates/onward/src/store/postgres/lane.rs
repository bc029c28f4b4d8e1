//! A committer's lane: one connection, one transaction at a time, what arrives meanwhile goes
//! together.
//!
//! Owns: the queue of a lane and the gathering of its next commit. Never waits for more to come:
//! an idle lane commits a lone write at once. Never puts two writes of one run into one commit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row, Statement};

use super::Shared;
use super::direct::is_direct;
use super::fault::Fault;
use super::tx::{Param, limited, query};
use crate::RunId;
use crate::limits::{COMMIT_BATCH_MAX, COMMIT_BYTES_MAX};

/// A write that waits for its commit.
pub(super) trait Write: Send + 'static {
    /// The runs it is about.
    fn runs(&self) -> impl Iterator<Item = RunId>;
    /// Its payloads.
    fn bytes(&self) -> usize;
    /// Commits these together, and answers each.
    fn commit(batch: Vec<Self>, line: &mut Line) -> impl Future<Output = ()> + Send
    where
        Self: Sized;
}

/// Where writes are submitted.
#[derive(Debug)]
pub(super) struct Lane<W> {
    sender: mpsc::UnboundedSender<W>,
}

impl<W: Write> Lane<W> {
    /// Starts a lane on the runtime that this is called on.
    pub(super) fn start(shared: Arc<Shared>) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(serve(receiver, Line { shared, conn: None }));
        (Self { sender }, task)
    }

    /// Queues a write. One that cannot be queued is dropped, which its caller notices.
    pub(super) fn submit(&self, write: W) {
        let _ = self.sender.send(write);
    }
}

/// Commits until nobody can submit any more.
async fn serve<W: Write>(mut receiver: mpsc::UnboundedReceiver<W>, mut line: Line) {
    let mut queued = VecDeque::new();
    let mut arrived = Vec::new();
    loop {
        if queued.is_empty() {
            if receiver.recv_many(&mut arrived, COMMIT_BATCH_MAX).await == 0 {
                return;
            }
        } else {
            while arrived.len() < COMMIT_BATCH_MAX
                && let Ok(write) = receiver.try_recv()
            {
                arrived.push(write);
            }
        }
        queued.extend(arrived.drain(..));
        W::commit(next_batch(&mut queued), &mut line).await;
    }
}

/// The writes of the next commit, in order. A second write of a run waits for the commit after.
fn next_batch<W: Write>(queued: &mut VecDeque<W>) -> Vec<W> {
    let room = queued.len().min(COMMIT_BATCH_MAX);
    let (mut runs, mut batch) = (HashSet::with_capacity(room), Vec::with_capacity(room));
    let mut later = VecDeque::new();
    let mut bytes = 0;
    while let Some(write) = queued.pop_front() {
        let full = batch.len() == COMMIT_BATCH_MAX || bytes > COMMIT_BYTES_MAX;
        if full || write.runs().any(|run| runs.contains(&run)) {
            later.push_back(write);
            if full {
                break;
            }
            continue;
        }
        runs.extend(write.runs());
        bytes += write.bytes();
        batch.push(write);
    }
    later.append(queued);
    *queued = later;
    batch
}

/// A lane's connection.
pub(super) struct Line {
    pub(super) shared: Arc<Shared>,
    conn: Option<Conn>,
}

impl Line {
    /// Executes one statement, which is the whole transaction. A connection that did not answer
    /// is given up.
    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let mut conn = match self.conn.take().filter(|conn| !conn.client.is_closed()) {
            Some(conn) => conn,
            None => Conn::new(self.shared.connector.connect().await?),
        };
        let answer = conn.rows(&self.shared, sql, params).await;
        if !matches!(answer, Err(Fault::Outage(..))) {
            self.conn = Some(conn);
        }
        answer
    }
}

/// Statements on a connection before it is asked who is at its other end: what a short program says
/// is not worth a preparation.
const PREPARE_AFTER: u32 = 8;

/// What a server says of a statement that it no longer has, or has with another answer.
const FORGOTTEN: [SqlState; 2] =
    [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::FEATURE_NOT_SUPPORTED];

/// A connection, and what is prepared on it.
struct Conn {
    client: Client,
    /// Statements so far, while they count.
    used: u32,
    /// Where the server itself is at the other end, by their text: to parse and plan a statement costs
    /// as much as to execute a lone one.
    prepared: Option<HashMap<&'static str, Statement>>,
}

impl Conn {
    fn new(client: Client) -> Self {
        Self { client, used: 0, prepared: None }
    }

    async fn rows(
        &mut self,
        shared: &Shared,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        self.used = self.used.saturating_add(1);
        if self.used == PREPARE_AFTER && is_direct(shared, &self.client).await? {
            self.prepared = Some(HashMap::new());
        }
        let Some(statement) = self.statement(shared, sql, params).await? else {
            return query(shared, &self.client, sql, params).await;
        };
        let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
        let asked = async {
            match self.client.query(&statement, &values).await {
                Err(error) if error.code().is_some_and(|code| FORGOTTEN.contains(code)) => Ok(None),
                answer => answer.map(Some),
            }
        };
        if let Some(rows) = limited(shared, asked).await? {
            return Ok(rows);
        }
        // Nothing was executed. Whoever lets a session forget may do so again.
        self.prepared = None;
        query(shared, &self.client, sql, params).await
    }

    /// A statement as it is prepared, where it may be.
    async fn statement(
        &mut self,
        shared: &Shared,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<Statement>, Fault> {
        let Some(prepared) = &mut self.prepared else { return Ok(None) };
        if let Some(statement) = prepared.get(sql) {
            return Ok(Some(statement.clone()));
        }
        let types: Vec<_> = params.iter().map(|(_, of)| of.clone()).collect();
        let text = shared.sql.text(sql);
        let statement = limited(shared, self.client.prepare_typed(&text, &types)).await?;
        prepared.insert(sql, statement.clone());
        Ok(Some(statement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Of(u128, usize);

    impl Write for Of {
        fn runs(&self) -> impl Iterator<Item = RunId> {
            std::iter::once(RunId::from_u128(self.0))
        }

        fn bytes(&self) -> usize {
            self.1
        }

        async fn commit(_: Vec<Self>, _: &mut Line) {}
    }

    fn batch(queued: &mut VecDeque<Of>) -> Vec<u128> {
        next_batch(queued).iter().map(|write| write.0).collect()
    }

    #[test]
    fn a_second_write_of_a_run_waits_for_the_commit_after() {
        let mut queued: VecDeque<Of> = [1, 2, 1, 3, 1].map(|run| Of(run, 0)).into();
        assert_eq!(batch(&mut queued), [1, 2, 3]);
        assert_eq!(batch(&mut queued), [1]);
        assert_eq!(batch(&mut queued), [1]);
    }

    #[test]
    fn a_commit_is_bounded_in_rows_and_bytes() {
        let mut queued: VecDeque<Of> = (0..2_000).map(|run| Of(run, 0)).collect();
        assert_eq!(batch(&mut queued).len(), COMMIT_BATCH_MAX);
        let mut queued: VecDeque<Of> = (0..10).map(|run| Of(run, COMMIT_BYTES_MAX)).collect();
        assert_eq!(batch(&mut queued), [0, 1]);
        assert_eq!(batch(&mut queued), [2, 3]);
        assert_eq!(queued.len(), 6);
    }
}
