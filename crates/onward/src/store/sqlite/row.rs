//! Columns to runs and records, and back.
//!
//! Owns: the order and the form of the columns. Never decides anything: an undecodable value is
//! [`Fault::Data`], and the caller knows whose it is.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, params};

use super::fault::Fault;
use crate::limits::SUSPECT_CRASHES;
use crate::store::{column, rules};
use crate::{Code, Json, Notes, Parent, Record, Run, RunId, RunState, Timestamp, Waits, WorkerId};

pub(super) const RUN: &str = include_str!("sql/run.sql");
const RUN_BY_ID: &str = concat!(include_str!("sql/run.sql"), include_str!("sql/run_by_id.sql"));
const RUN_BY_NO: &str = concat!(include_str!("sql/run.sql"), include_str!("sql/run_by_no.sql"));
const SAVE: &str = include_str!("sql/run_save.sql");

// The partial indexes on queued runs are written for this number.
const _: () = assert!(SUSPECT_CRASHES == 3);

/// A run with what the store keeps about it besides.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) no: i64,
    pub(super) run: Run,
    /// The ticket of the claim that holds it.
    pub(super) ticket: Option<i64>,
    /// The step whose failure ended the run.
    pub(super) failed_step: Option<String>,
    /// Bytes of the signals that the run was sent.
    pub(super) signal_bytes: u64,
}

impl Row {
    /// Queues the run at once and counts it as a wake-up.
    pub(super) fn queue(&mut self, now: Timestamp) {
        rules::queue(&mut self.run, now);
        self.ticket = None;
    }

    /// Takes the run from its holder.
    pub(super) fn release(&mut self) {
        self.run.worker = None;
        self.ticket = None;
    }

    pub(super) fn save(&self, conn: &Connection) -> Result<(), Fault> {
        let run = &self.run;
        let waits = waits_columns(run.waits_for.as_ref())?;
        conn.prepare_cached(SAVE)?.execute(params![
            self.no,
            run.state.as_str(),
            run.attempt,
            run.worker.map(worker_blob),
            self.ticket,
            signed(run.wakes),
            run.crashes,
            run.due_at.map(Timestamp::as_millis),
            run.cancel_at.map(Timestamp::as_millis),
            run.finished_at.map(Timestamp::as_millis),
            run.build,
            run.successor.map(run_blob),
            waits.waits_for.as_ref(),
            waits.stuck.as_ref(),
            builds_column(&run.stuck_builds, &waits)?,
            run.started_at.map(Timestamp::as_millis),
            run.deadline_at.map(Timestamp::as_millis),
            run.retried_at.map(Timestamp::as_millis),
            self.failed_step,
            signed(run.duplicates),
            run.continued_as.map(run_blob),
            signed(run.signals),
            run.paused_at.map(Timestamp::as_millis),
            run.paused_by,
            notes_column(run)?,
        ])?;
        Ok(())
    }
}

/// The run with this id.
pub(super) fn by_id(conn: &Connection, id: RunId) -> Result<Option<Row>, Fault> {
    first(conn, RUN_BY_ID, [run_blob(id)], row)
}

/// The run with this id, for what is done about another: one that cannot be read counts as none, so that it
/// harms only itself.
pub(super) fn readable(conn: &Connection, id: RunId) -> Result<Option<Row>, Fault> {
    match by_id(conn, id) {
        Err(Fault::Data(source)) => {
            tracing::warn!(run = %id, %source, "a run that cannot be read is passed over");
            Ok(None)
        }
        found => found,
    }
}

/// The run with this number.
pub(super) fn by_no(conn: &Connection, no: i64) -> Result<Option<Row>, Fault> {
    first(conn, RUN_BY_NO, [no], row)
}

/// The first row of a query, decoded.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    decode: impl FnOnce(&rusqlite::Row<'_>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(decode).transpose()
}

/// Every row of a query, decoded.
pub(super) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    mut decode: impl FnMut(&rusqlite::Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decode(row)?);
    }
    Ok(found)
}

/// The next set of builds after `last`, in order. Asked from set to set, it skips their runs.
pub(super) fn next_set(conn: &Connection, sql: &str, last: &str) -> Result<Option<String>, Fault> {
    Ok(first(conn, sql, [last], |row| Ok(row.get(0)?))?.flatten())
}

/// A row of `run.sql`.
pub(super) fn row(row: &rusqlite::Row<'_>) -> Result<Row, Fault> {
    let mut columns = Columns { row, next: 0 };
    let no = columns.take()?;
    let ticket = columns.take()?;
    let failed_step = columns.take()?;
    let signal_bytes = columns.unsigned()?;
    let run = Run {
        id: columns.run_id()?,
        workflow: columns.take()?,
        state: columns.state()?,
        queue: columns.take()?,
        priority: columns.take()?,
        key: columns.take()?,
        input: Json::stored(columns.take::<String>()?),
        output: columns.take::<Option<String>>()?.map(Json::stored),
        failure: columns.json()?,
        attempt: columns.take()?,
        worker: columns.take::<Option<[u8; 16]>>()?.map(worker_id),
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
        crashes: columns.take()?,
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
    Ok(Row { no, run, ticket, failed_step, signal_bytes })
}

/// What a list shows of a row of `run.sql` that cannot be read: its id, workflow, state and
/// times as far as they can be, and why it cannot, as what it waits for.
pub(super) fn shown(row: &rusqlite::Row<'_>, fault: &Fault) -> Result<Run, Fault> {
    let id = row.get("id").map(run_id)?;
    let text = |name| row.get::<_, String>(name).unwrap_or_default();
    let created_at = Timestamp::from_millis(row.get("created_at").unwrap_or_default());
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
        Fault::Outage(_, source) => source.clone(),
        Fault::Data(source) => source.to_string(),
        Fault::Ended => "the transaction is over".to_owned(),
        Fault::Uncommitted(refused) => refused.to_string(),
    };
    Waits::Stuck { code: Code::CorruptRecord.as_str().to_owned(), detail }
}

/// A row of `claim_history.sql` or `history.sql`.
pub(super) fn record(row: &rusqlite::Row<'_>) -> Result<Record, Fault> {
    let mut columns = Columns { row, next: 0 };
    let seq = columns.unsigned()?;
    let step: String = columns.take()?;
    let kind: String = columns.take()?;
    let body: Option<String> = columns.take()?;
    let try_number = columns.take()?;
    let attempt = columns.take()?;
    let began_at = columns.time()?;
    let at = columns.time()?;
    let next_at = columns.time_or_none()?;
    let foreign = columns.take()?;
    let voided_at = columns.time_or_none()?;
    let undoable = column::is_undoable(&kind);
    let entry = column::entry(&kind, body, next_at).map_err(Fault::data)?;
    Ok(Record { seq, step, entry, try_number, attempt, began_at, at, foreign, undoable, voided_at })
}

/// Reads the columns of a row one after the other.
pub(super) struct Columns<'r, 's> {
    pub(super) row: &'r rusqlite::Row<'s>,
    pub(super) next: usize,
}

impl Columns<'_, '_> {
    pub(super) fn take<T: FromSql>(&mut self) -> Result<T, Fault> {
        let value = self.row.get(self.next)?;
        self.next += 1;
        Ok(value)
    }

    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, Fault> {
        let text: Option<String> = self.take()?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(Fault::data)
    }

    fn state(&mut self) -> Result<RunState, Fault> {
        self.take::<String>()?.parse().map_err(Fault::data)
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
        Ok(self.take::<Option<[u8; 16]>>()?.map(run_id))
    }

    fn parent(&mut self) -> Result<Option<Parent>, Fault> {
        let (run, step) = (self.run_id_or_none()?, self.take::<Option<String>>()?);
        let detached = self.take()?;
        Ok(run.map(|run| Parent { run, step: step.unwrap_or_default(), detached }))
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, Fault> {
        u64::try_from(self.take::<i64>()?).map_err(Fault::data)
    }
}

/// The two columns that say what a run waits for.
pub(super) struct WaitsColumns {
    pub(super) waits_for: Option<String>,
    /// The code of a stuck run, which its index is made of.
    pub(super) stuck: Option<String>,
}

pub(super) fn waits_columns(waits_for: Option<&Waits>) -> Result<WaitsColumns, Fault> {
    let stuck = match waits_for {
        Some(Waits::Stuck { code, .. }) => Some(code.clone()),
        _ => None,
    };
    let waits_for = waits_for.map(json_text).transpose()?;
    Ok(WaitsColumns { waits_for, stuck })
}

/// The builds under which a run got stuck; nothing for most runs, but always something for a
/// stuck one, because its index is made of it.
pub(super) fn builds_column(
    builds: &[String],
    waits: &WaitsColumns,
) -> Result<Option<String>, Fault> {
    let needed = !builds.is_empty() || waits.stuck.is_some();
    if needed { json_text(&builds).map(Some) } else { Ok(None) }
}

/// What the run's code noted; nothing for most runs.
pub(super) fn notes_column(run: &Run) -> Result<Option<String>, Fault> {
    let noted = run.notes != Notes::default();
    noted.then(|| json_text(&run.notes)).transpose()
}

pub(super) fn json_text<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(Fault::data)
}

/// The id in a column, or nothing when it is damaged: for those that go through many rows, of
/// which a bad one must not hold up the others.
pub(super) fn whole_id(row: &rusqlite::Row<'_>, column: usize) -> Option<[u8; 16]> {
    row.get(column).ok()
}

pub(super) fn run_blob(id: RunId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

pub(super) fn run_id(bytes: [u8; 16]) -> RunId {
    RunId::from_u128(u128::from_be_bytes(bytes))
}

pub(super) fn worker_blob(id: WorkerId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

pub(super) fn worker_id(bytes: [u8; 16]) -> WorkerId {
    WorkerId::from_u128(u128::from_be_bytes(bytes))
}

/// SQLite's integers are signed; numbers past their range are cut.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A limit as SQLite takes it.
pub(super) fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
