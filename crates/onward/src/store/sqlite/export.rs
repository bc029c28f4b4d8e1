//! Whole runs, out.
//!
//! Owns: which rows belong to a run, when it is read. Never writes.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::fault::Fault;
use super::row::{self, Row, run_blob, run_id};
use super::{notebook, signal};
use crate::limits::{COPY_BATCH_MAX, COPY_BYTES_MAX, COPY_ROWS_MAX};
use crate::store::{Duplicate, KeyHold, Trace, WholeRun, column};
use crate::{RunId, Timestamp};

const RUNS: &str = concat!(include_str!("sql/run.sql"), include_str!("sql/export_runs.sql"));

/// The column of run.sql that holds the run's id.
const RUN_ID_COLUMN: usize = 4;

/// Runs with all that belongs to them, after `after`, up to the limits of one batch. Rows are
/// read one by one, so that no more than one run past the limit is ever in memory.
pub(super) fn export(
    conn: &Connection,
    after: Option<RunId>,
    limit: usize,
) -> Result<Vec<WholeRun>, Fault> {
    // Every id comes after the empty one.
    let after = after.map_or(Vec::new(), |after| run_blob(after).to_vec());
    let mut statement = conn.prepare_cached(RUNS)?;
    let mut rows = statement.query(params![after, row::limit(limit.clamp(1, COPY_BATCH_MAX))])?;
    let mut runs = Vec::new();
    let (mut bytes, mut parts) = (0, 0);
    while let Some(read) = rows.next()? {
        let whole = row::row(read).and_then(|row| whole(conn, row)).map_err(|fault| {
            let id = row::whole_id(read, RUN_ID_COLUMN).map(run_id);
            unreadable(id, fault)
        })?;
        bytes += whole.bytes();
        parts += whole.rows();
        runs.push(whole);
        if bytes >= COPY_BYTES_MAX || parts >= COPY_ROWS_MAX {
            break;
        }
    }
    Ok(runs)
}

/// Names the run whose rows cannot be read: a copy without it would lose it.
fn unreadable(run: Option<RunId>, fault: Fault) -> Fault {
    let run = run.map_or("a run with a damaged id".to_owned(), |run| format!("run {run}"));
    match fault {
        Fault::Data(source) => Fault::data(format!("{run} cannot be read: {source}")),
        fault => fault,
    }
}

/// A run with all that belongs to it.
pub(super) fn whole(conn: &Connection, row: Row) -> Result<WholeRun, Fault> {
    let Row { no, run, failed_step, .. } = row;
    let params = params![no, -1, i64::MAX];
    let records = row::all(conn, include_str!("sql/history.sql"), params, row::record)?;
    let mut attempts = attempts(conn, no)?;
    if let Some((attempt, trace)) = Trace::of_end(&run) {
        attempts.entry(attempt).or_insert(trace);
    }
    let suppressed = suppressed(conn, no)?;
    let hold = match &run.key {
        Some(key) => hold(conn, &run.workflow, key, no)?,
        None => None,
    };
    let signals = if run.signals > 0 { signal::all(conn, no, 0)? } else { Vec::new() };
    let log = if run.notes.log_lines > 0 { notebook::all(conn, no, 0)? } else { Vec::new() };
    let cascades = row::first(conn, include_str!("sql/export_cascades.sql"), [no], |_| Ok(()))?;
    let cascades = cascades.is_some();
    Ok(WholeRun { run, records, attempts, failed_step, hold, suppressed, signals, log, cascades })
}

fn attempts(conn: &Connection, no: i64) -> Result<BTreeMap<u32, Trace>, Fault> {
    let sql = include_str!("sql/export_attempts.sql");
    let traces = row::all(conn, sql, [no], |row| {
        let settled: Option<String> = row.get(2)?;
        let settled =
            settled.map(|text| column::settled(&text)).transpose().map_err(Fault::data)?;
        Ok((row.get(0)?, Trace { build: row.get(1)?, settled }))
    })?;
    Ok(traces.into_iter().collect())
}

fn suppressed(conn: &Connection, no: i64) -> Result<Vec<(RunId, Duplicate)>, Fault> {
    row::all(conn, include_str!("sql/export_duplicates.sql"), [no], |row| {
        let at = Timestamp::from_millis(row.get(1)?);
        let duplicate = Duplicate { at, caller: row.get(2)?, same_input: row.get(3)? };
        Ok((run_id(row.get(0)?), duplicate))
    })
}

fn hold(conn: &Connection, workflow: &str, key: &str, no: i64) -> Result<Option<KeyHold>, Fault> {
    let sql = include_str!("sql/export_hold.sql");
    row::first(conn, sql, params![workflow, key, no], |row| {
        let expires_at = row.get::<_, Option<i64>>(1)?.map(Timestamp::from_millis);
        Ok(KeyHold { fingerprint: crate::Fingerprint(row.get(0)?), expires_at })
    })
}
