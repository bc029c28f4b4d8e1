//! A lane's connection, and what is prepared on it.
//!
//! Owns: when the connection is made anew, and which statements are parsed once. Never gathers writes;
//! `lane` does.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row, Statement};

use super::Shared;
use super::direct::is_direct;
use super::fault::Fault;
use super::tx::{Param, limited, query};

/// Statements under a lease on a connection before it is asked who is at its other end. To ask and to
/// prepare are two more answers to wait for, and each use of what is prepared saves a tenth of one.
const PREPARE_AFTER: u32 = 8;

/// What a session says that is not the one in which a statement was prepared, or has forgotten it.
const FOREIGN: [SqlState; 4] = [
    SqlState::INVALID_SQL_STATEMENT_NAME,
    SqlState::DUPLICATE_PSTATEMENT,
    SqlState::PROTOCOL_VIOLATION,
    SqlState::FEATURE_NOT_SUPPORTED,
];

/// Executes a statement as it was prepared; nothing, and nothing is done, where this is not the session
/// for it.
pub(super) async fn rows_prepared(
    client: &Client,
    statement: &Statement,
    params: &[Param<'_>],
) -> Result<Option<Vec<Row>>, tokio_postgres::Error> {
    let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
    known(client.query(statement, &values).await)
}

/// What a session said that knows the statement.
fn known<T>(answer: Result<T, tokio_postgres::Error>) -> Result<Option<T>, tokio_postgres::Error> {
    match answer {
        Err(error) if error.code().is_some_and(|code| FOREIGN.contains(code)) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Executes statements whose every write stands on a lease, each of which is a whole transaction.
pub(super) trait UnderLease: Send {
    fn shared(&self) -> &Arc<Shared>;

    /// Executes one. A connection that did not answer is given up.
    fn rows_under_lease(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, Fault>> + Send;
}

/// Where a lane executes its statements, each of which is a whole transaction.
pub(super) struct Line {
    pub(super) shared: Arc<Shared>,
    conn: Option<Conn>,
    /// Not after a session was seen to be another's: whatever is between is there tomorrow too.
    may_prepare: bool,
}

struct Conn {
    client: Client,
    /// How many statements under a lease there were, as far as that matters.
    used: u32,
    /// By their text, where the server itself is at the other end.
    prepared: Option<HashMap<&'static str, Statement>>,
}

impl Line {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, conn: None, may_prepare: true }
    }

    /// Executes a statement. A connection that did not answer is given up.
    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let conn = self.take().await?;
        let answer = query(&self.shared, &conn.client, sql, params).await;
        self.put_back(conn, answer)
    }

    async fn take(&mut self) -> Result<Conn, Fault> {
        match self.conn.take().filter(|conn| !conn.client.is_closed()) {
            Some(conn) => Ok(conn),
            None => {
                let client = self.shared.connector.connect().await?;
                Ok(Conn { client, used: 0, prepared: None })
            }
        }
    }

    fn put_back<T>(&mut self, conn: Conn, answer: Result<T, Fault>) -> Result<T, Fault> {
        if !matches!(answer, Err(Fault::Outage(..))) {
            self.conn = Some(conn);
        }
        answer
    }

    async fn rows_once_parsed(
        &mut self,
        conn: &mut Conn,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let shared = Arc::clone(&self.shared);
        conn.used = conn.used.saturating_add(1);
        if conn.used == PREPARE_AFTER
            && self.may_prepare
            && is_direct(&shared, &conn.client).await?
        {
            conn.prepared = Some(HashMap::new());
        }
        if conn.prepared.is_some() {
            if let Some(rows) = limited(&shared, conn.rows(&shared, sql, params)).await? {
                return Ok(rows);
            }
            // Nothing was committed: the statement is the whole transaction.
            conn.prepared = None;
            self.may_prepare = false;
        }
        query(&shared, &conn.client, sql, params).await
    }
}

impl UnderLease for Line {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Parses it once where it may.
    ///
    /// Nothing else is prepared: if a pooler were taken for a server after all, the statement of
    /// another store would be executed, where no such run is held, and be refused.
    async fn rows_under_lease(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let mut conn = self.take().await?;
        let answer = self.rows_once_parsed(&mut conn, sql, params).await;
        self.put_back(conn, answer)
    }
}

impl Conn {
    /// Executes a statement as it is prepared; nothing where this is not the session for it.
    async fn rows(
        &mut self,
        shared: &Shared,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<Vec<Row>>, tokio_postgres::Error> {
        match known(self.statement(shared, sql, params).await)? {
            Some(statement) => rows_prepared(&self.client, &statement, params).await,
            None => Ok(None),
        }
    }

    async fn statement(
        &mut self,
        shared: &Shared,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Statement, tokio_postgres::Error> {
        let prepared = self.prepared.get_or_insert_default();
        if let Some(statement) = prepared.get(sql) {
            return Ok(statement.clone());
        }
        let types: Vec<_> = params.iter().map(|(_, of)| of.clone()).collect();
        let statement = self.client.prepare_typed(&shared.sql.text(sql), &types).await?;
        prepared.insert(sql, statement.clone());
        Ok(statement)
    }
}
