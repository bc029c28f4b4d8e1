//! Transactional steps: a user's writes and the step's record, in one transaction.
//!
//! Owns: the order of the checks, the body's execution, and the last word that is sent together
//! with the commit. Never holds the fence while the body executes: a body that takes long, or a
//! client that stands still, holds up nobody but itself.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Row as PgRow};

use super::Shared;
use super::fault::{AGAIN_MAX, Fault};
use super::home::Home;
use super::pool::Pooled;
use super::row::{self, RecordRow, run_uuid, signed, small, worker_uuid};
use super::tx::{Param, limited, query};
use crate::store::{Error, Lease, PostgresBody, Transact, Transacted};
use crate::{Code, Failure, Json, Record, failpoint};

const TRANSACT: &str =
    "select onward.transact($13, $1, $14, $2, $15, $16, $3, $4, $5, $6, $7, $8, $9, $10, $12)";

/// How often a body is executed again whose connection was lost under it before that is its failure: what
/// ends the session may be a statement of its own.
const LOST_MAX: u32 = 3;

/// A transaction in the store's own database, as the body of a transactional step has it.
///
/// It is used as a [`tokio_postgres::Client`]: `query`, `execute`, and whatever takes a
/// `GenericClient`. It begins before the body and is committed after it, together with the step's
/// record; `savepoint` is fine, `commit` and `rollback` are the step's.
#[derive(Clone)]
pub struct PostgresTransaction(Arc<Pooled>);

impl std::ops::Deref for PostgresTransaction {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl fmt::Debug for PostgresTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresTransaction")
    }
}

/// Executes the body and adds the record, unless the record is there or the lease is lost.
pub(super) async fn transact(
    home: &Home,
    shared: Arc<Shared>,
    transact: Transact,
) -> Result<Transacted, Error> {
    let Some(body) = transact.body.get::<PostgresBody>() else {
        return Ok(transact.body.refused());
    };
    let (mut tries, mut lost) = (0, 0);
    loop {
        tries += 1;
        let begun = home.answer(begin(
            Arc::clone(&shared),
            transact.lease,
            Arc::clone(&transact.step),
            transact.time_max,
        ));
        let open = match begun.await? {
            Begun::Recorded(record) => return Ok(Transacted::Recorded(record)),
            Begun::Open(open) => open,
        };
        if !transact.place.is_wanted() {
            return Ok(Transacted::Unwanted);
        }
        match execute(home, &shared, &transact, open, body).await {
            Ok(Executed::Said(said)) => return Ok(said),
            Ok(Executed::Lost(_)) if lost < LOST_MAX => lost += 1,
            Ok(Executed::Lost(failure)) => return Ok(Transacted::Failed(failure)),
            Err(Fault::Again(_) | Fault::OneByOne) if tries < AGAIN_MAX => {}
            Err(fault) => return Err(fault.into()),
        }
    }
}

enum Begun {
    /// An earlier execution was committed.
    Recorded(Record),
    Open(Open),
}

/// A transaction that is open for a body.
struct Open {
    conn: Pooled,
    /// The database's name for it.
    name: String,
}

async fn begin(
    shared: Arc<Shared>,
    lease: Lease,
    step: Arc<str>,
    time_max: Duration,
) -> Result<Begun, Fault> {
    let mut conn = shared.pool.get().await?;
    conn.is_clean = false;
    // To the server 0 is no limit.
    let limit = time_max.as_millis().max(1);
    let begin = format!(
        "begin isolation level read committed; \
         set local idle_in_transaction_session_timeout = {limit}; \
         set local statement_timeout = {limit}"
    );
    let run = run_uuid(lease.run);
    let (worker, attempt) = (worker_uuid(lease.worker), small(lease.attempt));
    let of_step: [Param<'_>; 2] = [(&run, Type::UUID), (&&*step, Type::TEXT)];
    let of_lease: [Param<'_>; 3] =
        [(&run, Type::UUID), (&worker, Type::UUID), (&attempt, Type::INT4)];
    let (begun, name, recorded, held) = tokio::join!(
        limited(&shared, conn.batch_execute(&begin)),
        query(&shared, &conn, include_str!("sql/transact_name.sql"), &[]),
        query(&shared, &conn, include_str!("sql/transact_record.sql"), &of_step),
        query(&shared, &conn, include_str!("sql/transact_begin.sql"), &of_lease),
    );
    begun?;
    let recorded = recorded?.first().map(row::record).transpose()?;
    let name: String = only(&name?)?;
    let holds: bool = only(&held?)?;
    match recorded {
        Some(record) if holds || record.attempt == lease.attempt => Ok(Begun::Recorded(record)),
        _ if !holds => Err(Error::LeaseLost.into()),
        _ => Ok(Begun::Open(Open { conn, name })),
    }
}

/// The one value that a statement answers.
fn only<'r, T: FromSql<'r>>(rows: &'r [PgRow]) -> Result<T, Fault> {
    let row = rows.first().ok_or_else(|| Fault::data("a statement without an answer"))?;
    row.try_get(0).map_err(Fault::data)
}

/// What became of an execution.
enum Executed {
    Said(Transacted),
    /// The connection was lost before the body had ended, which it met as this failure.
    Lost(Failure),
}

/// Executes the body where the caller is, and ends the transaction on the store's own thread.
async fn execute(
    home: &Home,
    shared: &Arc<Shared>,
    transact: &Transact,
    open: Open,
    body: &PostgresBody,
) -> Result<Executed, Fault> {
    let said = |said| Ok(Executed::Said(said));
    let Open { conn, name } = open;
    let shared = Arc::clone(shared);
    let conn = Arc::new(conn);
    let (given, began) = (PostgresTransaction(Arc::clone(&conn)), Instant::now());
    let result = match tokio::time::timeout(transact.time_max, caught(body, given)).await {
        Ok(result) => result,
        Err(_) => Err(refused(transact, Code::TransactionTimeout)),
    };
    // Not with the wait for a connection that does not answer.
    let is_late = began.elapsed() >= transact.time_max;
    // Somebody who keeps the transaction could write into the next one on its connection.
    let Ok(conn) = Arc::try_unwrap(conn) else {
        let kept = || refused(transact, Code::TransactionEnded);
        return said(Transacted::Failed(result.err().unwrap_or_else(kept)));
    };
    let result = match result {
        Ok(result) => result,
        Err(failure) => {
            // A connection that does not answer is given up, and what is open on it with it.
            let wait_max = shared.timeout.max(transact.time_max);
            let undoing = home.spawn(async move { roll_back(wait_max, conn).await });
            let is_told = failure.is(Code::TransactionTimeout.as_str());
            return match undoing.await.unwrap_or(RolledBack::Closed) {
                // It is not the body's fault what it met at a server that stands still.
                RolledBack::Silent => Err(Fault::no_answer(failure.to_string())),
                RolledBack::Closed if is_told => said(Transacted::Failed(failure)),
                // The server ends a session that idles past the limit, and whoever was busy for so long
                // hears of that first.
                RolledBack::Closed if is_late => {
                    said(Transacted::Failed(refused(transact, Code::TransactionTimeout)))
                }
                RolledBack::Closed => Ok(Executed::Lost(failure)),
                RolledBack::Undone => said(Transacted::Failed(failure)),
            };
        }
    };
    let Some(record) = transact.place.place(result) else {
        let wait_max = shared.timeout;
        let _ = home.spawn(async move { roll_back(wait_max, conn).await }).await;
        return said(Transacted::Unwanted);
    };
    failpoint::hit("transact.before_record");
    let (said_of, kept) = (transact.clone(), record.clone());
    let ending = home.spawn(async move { commit(&shared, conn, &said_of, &name, &kept).await });
    match ending.await {
        Ok(Ok(())) => said(Transacted::Recorded(record)),
        Ok(Err(Undone::Ended)) => {
            said(Transacted::Failed(refused(transact, Code::TransactionEnded)))
        }
        Ok(Err(Undone::Refused(why))) => said(Transacted::Failed(Failure::new(why))),
        Ok(Err(Undone::By(fault))) => Err(fault),
        Err(gone) => Err(Fault::no_answer(gone.to_string())),
    }
}

/// A body's result; a panic in it is a failure.
async fn caught(body: &PostgresBody, given: PostgresTransaction) -> Result<Json, Failure> {
    let made = catch_unwind(AssertUnwindSafe(|| body(given)));
    let mut future = made.map_err(Failure::of_panic)?;
    std::future::poll_fn(move |cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(Failure::of_panic(panic))))
    })
    .await
}

fn refused(transact: &Transact, code: Code) -> Failure {
    let Transact { lease, step, time_max, .. } = transact;
    tracing::warn!(run = %lease.run, %step, %code, ?time_max, "a transaction is undone");
    Failure::engine(code, format!("{} ({time_max:?} at most)", code.advice()))
}

/// What the server said to a rollback.
enum RolledBack {
    Undone,
    /// The session had ended, and its transaction with it.
    Closed,
    /// Nothing. A statement that the body left behind ends by its own limit before that.
    Silent,
}

/// Undoes what is open on a connection.
async fn roll_back(wait_max: Duration, mut conn: Pooled) -> RolledBack {
    match tokio::time::timeout(wait_max, conn.batch_execute("rollback")).await {
        Ok(Ok(())) => {
            conn.is_clean = true;
            RolledBack::Undone
        }
        Ok(Err(_)) => RolledBack::Closed,
        Err(_) => RolledBack::Silent,
    }
}

/// Why a transaction was not committed.
enum Undone {
    /// Its body had ended it.
    Ended,
    /// The database refused it for what the body wrote: a deferred constraint, or an error that
    /// the body passed over.
    Refused(String),
    By(Fault),
}

/// Sends the record and the commit together.
async fn commit(
    shared: &Shared,
    mut conn: Pooled,
    transact: &Transact,
    name: &String,
    record: &Record,
) -> Result<(), Undone> {
    let row = RecordRow::of(transact.lease, record).map_err(Undone::By)?;
    let worker = worker_uuid(transact.lease.worker);
    let seqs: Vec<i64> = transact.follows.iter().map(|it| signed(it.seq)).collect();
    let steps: Vec<&str> = transact.follows.iter().map(|it| &*it.step).collect();
    let mut params = row.params().to_vec();
    params.extend::<[Param<'_>; 4]>([
        (name, Type::TEXT),
        (&worker, Type::UUID),
        (&seqs, Type::INT8_ARRAY),
        (&steps, Type::TEXT_ARRAY),
    ]);
    let text = shared.sql.text(TRANSACT);
    let (recorded, committed) = tokio::join!(
        limited(shared, async { conn.query_typed(&text, &params).await }),
        limited(shared, async { Ok(conn.batch_execute("commit").await) }),
    );
    conn.is_clean = matches!(committed, Ok(Ok(())));
    match (recorded, committed) {
        (Ok(_), Ok(Ok(()))) => {
            failpoint::hit("transact.after_commit");
            Ok(())
        }
        (Err(Fault::TransactionEnded), _) => Err(Undone::Ended),
        (Err(Fault::Data(why)), _) => Err(Undone::Refused(why.to_string())),
        (Err(fault), _) => Err(Undone::By(fault)),
        (Ok(_), Ok(Err(error))) => Err(Undone::at_commit(error)),
        (Ok(_), Err(fault)) => Err(Undone::By(fault)),
    }
}

impl Undone {
    /// What an error that answers the commit means. The server has undone the transaction, and
    /// unless the server itself is at fault, it has done so for what the body left to be checked
    /// at the end: whatever the code is, the same body would be refused again. A commit has no limit of
    /// time, so one that is cancelled was cancelled by somebody.
    fn at_commit(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else { return Undone::By(error.into()) };
        match db.code().code() {
            "40001" | "40P01" | "XX000" => Undone::By(error.into()),
            code if ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
                Undone::By(error.into())
            }
            code => Undone::Refused(format!("{} ({code})", db.message())),
        }
    }
}
