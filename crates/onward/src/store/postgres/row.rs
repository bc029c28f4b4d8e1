//! Columns to runs and records, and back.
//!
//! Owns: the order and the form of the columns. Never decides anything: an undecodable value is
//! [`Fault::Data`], and the caller knows whose it is.

use std::borrow::Cow;

use tokio_postgres::types::{FromSqlOwned, Type};

use super::fault::Fault;
use super::tx::Param;
use crate::limits::{
    CRASH_BACKOFF_MAX, CRASHES_MAX, DUPLICATES_KEPT_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX,
    PAYLOAD_BYTES_MAX, SUSPECT_CRASHES, TAG_VALUE_BYTES_MAX, TAGS_MAX,
};
use crate::store::column::{self, EntryColumns};
use crate::store::{Lease, rules};
use crate::{
    Code, Entry, Json, Notes, Parent, Record, Run, RunId, RunState, Timestamp, Waits, WorkerId,
};

pub(super) const RUN: &str = include_str!("sql/run.sql");
pub(super) const RUN_BY_ID: &str =
    concat!(include_str!("sql/run.sql"), include_str!("sql/run_by_id.sql"));
pub(super) const RUN_LOCKED: &str = concat!(
    include_str!("sql/run.sql"),
    include_str!("sql/run_by_id.sql"),
    include_str!("sql/run_lock.sql")
);
pub(super) const RUN_HELD: &str =
    concat!(include_str!("sql/run.sql"), include_str!("sql/run_held.sql"));

// The partial indexes on queued runs and the functions that sweep and start are written for these
// numbers.
const _: () = assert!(SUSPECT_CRASHES == 3 && CRASHES_MAX == 10);
const _: () = assert!(CRASH_BACKOFF_MAX.as_millis() == 60_000);
const _: () = assert!(NAME_BYTES_MAX == 128 && KEY_BYTES_MAX == 512);
const _: () = assert!(TAGS_MAX == 32 && TAG_VALUE_BYTES_MAX == 512);
const _: () = assert!(PAYLOAD_BYTES_MAX == 2_097_152 && DUPLICATES_KEPT_MAX == 100);

/// A run with what the store keeps about it besides.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) run: Run,
    /// The ticket of the claim that holds it.
    pub(super) ticket: Option<i64>,
    /// The step whose failure ended the run.
    pub(super) failed_step: Option<String>,
}

/// A row of `run.sql`.
pub(super) fn row(row: &tokio_postgres::Row) -> Result<Row, Fault> {
    let mut columns = Columns { row, next: 0 };
    let ticket = columns.take()?;
    let failed_step = columns.take()?;
    let run = Run {
        id: columns.run_id()?,
        workflow: columns.take()?,
        state: columns.take::<String>()?.parse().map_err(Fault::data)?,
        queue: columns.take()?,
        priority: columns.take()?,
        key: columns.take()?,
        input: Json::stored(columns.take::<String>()?),
        output: columns.take::<Option<String>>()?.map(Json::stored),
        failure: columns.json()?,
        attempt: columns.small()?,
        worker: columns.take::<Option<uuid::Uuid>>()?.map(worker_id),
        build: columns.take()?,
        created_at: columns.time()?,
        due_at: columns.time_or_none()?,
        started_at: columns.time_or_none()?,
        finished_at: columns.time_or_none()?,
        deadline_at: columns.time_or_none()?,
        cancel_at: columns.time_or_none()?,
        paused_at: columns.time_or_none()?,
        paused_by: columns.take()?,
        waits_for: columns.json()?,
        wakes: columns.unsigned()?,
        crashes: columns.small()?,
        stuck_builds: columns.json()?.unwrap_or_default(),
        duplicates: columns.unsigned()?,
        retried_at: columns.time_or_none()?,
        tags: columns.json()?.unwrap_or_default(),
        continued_from: columns.run_id_or_none()?,
        continued_as: columns.run_id_or_none()?,
        successor: columns.run_id_or_none()?,
        code_change: columns.json()?,
        signals: columns.unsigned()?,
        parent: columns.parent()?,
        forked_from: columns.run_id_or_none()?,
        notes: columns.json()?.unwrap_or_default(),
        lane: columns.take()?,
    };
    Ok(Row { run, ticket, failed_step })
}

/// What a list shows of a row of `run.sql` that cannot be read: its id, workflow, state and
/// times as far as they can be, and why it cannot, as what it waits for.
pub(super) fn shown(row: &tokio_postgres::Row, fault: &Fault) -> Result<Run, Fault> {
    let text = |name| row.try_get::<_, String>(name).unwrap_or_default();
    let id = run_id(row.try_get("id").map_err(Fault::data)?);
    let created_at = Timestamp::from_millis(row.try_get("created_at").unwrap_or_default());
    let mut run = Run::fresh(id, text("workflow"), Json::stored("null"), created_at);
    run.queue = text("queue");
    run.state = text("state").parse().map_err(Fault::data)?;
    run.due_at = None;
    run.waits_for = Some(corrupt(fault));
    Ok(run)
}

/// What a run waits for that cannot be read.
pub(super) fn corrupt(fault: &Fault) -> Waits {
    let detail = match fault {
        Fault::Refused(error) => error.to_string(),
        Fault::Again(why) | Fault::Outage(_, why) => why.clone(),
        Fault::OneByOne | Fault::TransactionEnded => String::new(),
        Fault::Data(source) => source.to_string(),
    };
    Waits::Stuck { code: Code::CorruptRecord.as_str().to_owned(), detail }
}

/// A row of `claim_history.sql` or `history.sql`.
pub(super) fn record(row: &tokio_postgres::Row) -> Result<Record, Fault> {
    let mut columns = Columns { row, next: 0 };
    let seq = columns.unsigned()?;
    let step: String = columns.take()?;
    let kind: String = columns.take()?;
    let body: Option<String> = columns.take()?;
    let try_number = columns.small()?;
    let attempt = columns.small()?;
    let began_at = columns.time()?;
    let at = columns.time()?;
    let next_at = columns.time_or_none()?;
    let foreign = columns.take()?;
    let voided_at = columns.time_or_none()?;
    let undoable = column::is_undoable(&kind);
    let entry = column::entry(&kind, body, next_at).map_err(Fault::data)?;
    Ok(Record { seq, step, entry, try_number, attempt, began_at, at, foreign, undoable, voided_at })
}

/// A record's columns, as it is added under a lease.
pub(super) struct RecordRow<'a> {
    pub(super) run: uuid::Uuid,
    pub(super) attempt: i32,
    pub(super) seq: i64,
    pub(super) step: &'a str,
    pub(super) slot: i64,
    pub(super) kind: &'static str,
    pub(super) body: Option<Cow<'a, str>>,
    pub(super) tries: i32,
    pub(super) began_at: i64,
    pub(super) at: i64,
    pub(super) next_at: Option<i64>,
    pub(super) foreign: bool,
}

impl<'a> RecordRow<'a> {
    pub(super) fn of(lease: Lease, record: &'a Record) -> Result<Self, Fault> {
        let (body, next_at) = body_columns(&record.entry)?;
        Ok(Self {
            run: run_uuid(lease.run),
            attempt: small(lease.attempt),
            seq: signed(record.seq),
            step: &record.step,
            slot: signed(rules::slot(record)),
            kind: column::of_kind(record),
            body,
            tries: small(record.try_number),
            began_at: record.began_at.as_millis(),
            at: record.at.as_millis(),
            next_at,
            foreign: record.foreign,
        })
    }

    /// Each column in this order, as the first parameters of a statement.
    pub(super) fn params(&self) -> [Param<'_>; 12] {
        [
            (&self.run, Type::UUID),
            (&self.attempt, Type::INT4),
            (&self.seq, Type::INT8),
            (&self.step, Type::TEXT),
            (&self.slot, Type::INT8),
            (&self.kind, Type::TEXT),
            (&self.body, Type::TEXT),
            (&self.tries, Type::INT4),
            (&self.began_at, Type::INT8),
            (&self.at, Type::INT8),
            (&self.next_at, Type::INT8),
            (&self.foreign, Type::BOOL),
        ]
    }
}

/// The columns `body` and `next_at` of an entry.
pub(super) fn body_columns(entry: &Entry) -> Result<EntryColumns<'_>, Fault> {
    column::of_entry(entry).map_err(Fault::data)
}

/// Reads the columns of a row one after the other.
pub(super) struct Columns<'r> {
    pub(super) row: &'r tokio_postgres::Row,
    pub(super) next: usize,
}

impl Columns<'_> {
    pub(super) fn take<T: FromSqlOwned>(&mut self) -> Result<T, Fault> {
        let value = self.row.try_get(self.next).map_err(Fault::data)?;
        self.next += 1;
        Ok(value)
    }

    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, Fault> {
        let text: Option<String> = self.take()?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(Fault::data)
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, Fault> {
        self.take().map(Timestamp::from_millis)
    }

    pub(super) fn time_or_none(&mut self) -> Result<Option<Timestamp>, Fault> {
        Ok(self.take::<Option<i64>>()?.map(Timestamp::from_millis))
    }

    fn run_id(&mut self) -> Result<RunId, Fault> {
        self.take().map(run_id)
    }

    fn run_id_or_none(&mut self) -> Result<Option<RunId>, Fault> {
        Ok(self.take::<Option<uuid::Uuid>>()?.map(run_id))
    }

    fn parent(&mut self) -> Result<Option<Parent>, Fault> {
        let (run, step) = (self.run_id_or_none()?, self.take::<Option<String>>()?);
        let detached = self.take()?;
        Ok(run.map(|run| Parent { run, step: step.unwrap_or_default(), detached }))
    }

    pub(super) fn small(&mut self) -> Result<u32, Fault> {
        u32::try_from(self.take::<i32>()?).map_err(Fault::data)
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, Fault> {
        u64::try_from(self.take::<i64>()?).map_err(Fault::data)
    }
}

/// The code of a stuck run, which its index is made of.
pub(super) fn stuck_column(waits_for: Option<&Waits>) -> Option<&str> {
    match waits_for {
        Some(Waits::Stuck { code, .. }) => Some(code),
        _ => None,
    }
}

/// The builds under which a run got stuck; nothing for most runs, but always something for a
/// stuck one, because its index is made of it.
pub(super) fn builds_column(run: &Run) -> Result<Option<String>, Fault> {
    let stuck = stuck_column(run.waits_for.as_ref()).is_some();
    let needed = !run.stuck_builds.is_empty() || stuck;
    if needed { json_text(&run.stuck_builds).map(Some) } else { Ok(None) }
}

/// What the run's code noted; nothing for most runs.
pub(super) fn notes_column(run: &Run) -> Result<Option<String>, Fault> {
    let noted = run.notes != Notes::default();
    noted.then(|| json_text(&run.notes)).transpose()
}

pub(super) fn json_text<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(Fault::data)
}

/// A state's column.
pub(super) fn state_of(row: &tokio_postgres::Row, column: usize) -> Result<RunState, Fault> {
    row.try_get::<_, String>(column).map_err(Fault::data)?.parse().map_err(Fault::data)
}

pub(super) fn run_uuid(id: RunId) -> uuid::Uuid {
    uuid::Uuid::from_u128(id.as_u128())
}

pub(super) fn run_id(id: uuid::Uuid) -> RunId {
    RunId::from_u128(id.as_u128())
}

pub(super) fn worker_uuid(id: WorkerId) -> uuid::Uuid {
    uuid::Uuid::from_u128(id.as_u128())
}

pub(super) fn worker_id(id: uuid::Uuid) -> WorkerId {
    WorkerId::from_u128(id.as_u128())
}

/// The lock that a worker's writes share: the lower half of its id, as `fence_key` has it.
pub(super) fn fence_key(id: WorkerId) -> i64 {
    (id.as_u128() as u64).cast_signed()
}

/// Postgres' integers are signed; numbers past their range are cut.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// As [`signed`], for the small ones.
pub(super) fn small(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A limit as Postgres takes it.
pub(super) fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A limit as the store's functions take it.
pub(super) fn small_limit(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
