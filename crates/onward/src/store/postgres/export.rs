//! Whole runs, out.
//!
//! Owns: which rows belong to a run, when it is read. Never writes.

use std::collections::BTreeMap;

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Type;

use super::fault::Fault;
use super::row::{self, Columns, Row, limit, run_id, run_uuid};
use super::tx::{Param, Tx};
use super::{notebook, signal};
use crate::limits::{COPY_BATCH_MAX, COPY_BYTES_MAX, COPY_ROWS_MAX};
use crate::store::{Duplicate, KeyHold, Trace, WholeRun, column};
use crate::{Fingerprint, RunId, Timestamp};

const RUNS: &str = concat!(include_str!("sql/run.sql"), include_str!("sql/export_runs.sql"));

/// Where export_records.sql has the run of a record.
const RECORD_RUN: usize = 11;

/// Runs with all that belongs to them, after `after`, up to the limits of one batch.
pub(super) async fn export(
    tx: &Tx,
    after: Option<RunId>,
    most: usize,
) -> Result<Vec<WholeRun>, Fault> {
    // No run has the id of nothing, so every id comes after it.
    let after = after.map_or(uuid::Uuid::nil(), run_uuid);
    let params: [Param<'_>; 4] = [
        (&after, Type::UUID),
        (&limit(most.clamp(1, COPY_BATCH_MAX)), Type::INT8),
        (&limit(COPY_BYTES_MAX), Type::INT8),
        (&limit(COPY_ROWS_MAX), Type::INT8),
    ];
    let found = tx.rows(include_str!("sql/export_ids.sql"), &params).await?;
    let ids: Result<Vec<uuid::Uuid>, _> = found.iter().map(|row| row.try_get(0)).collect();
    let wholes = wholes(tx, &ids.map_err(Fault::data)?).await?;
    Ok(wholes.into_values().collect())
}

/// These runs, those that are there, with all that belongs to them.
pub(super) async fn wholes(
    tx: &Tx,
    ids: &[uuid::Uuid],
) -> Result<BTreeMap<RunId, WholeRun>, Fault> {
    let mut wholes = BTreeMap::new();
    for found in rows(tx, RUNS, ids).await? {
        let id = run_id(found.try_get("id").map_err(Fault::data)?);
        let whole = row::row(&found).map(bare).map_err(|fault| unreadable(id, fault))?;
        wholes.insert(id, whole);
    }
    for found in rows(tx, include_str!("sql/export_records.sql"), ids).await? {
        let id = run_id(found.try_get(RECORD_RUN).map_err(Fault::data)?);
        let record = row::record(&found).map_err(|fault| unreadable(id, fault))?;
        wholes.entry(id).and_modify(|whole| whole.records.push(record));
    }
    for found in rows(tx, include_str!("sql/export_attempts.sql"), ids).await? {
        let (id, attempt, trace) = trace(&found)?;
        wholes.entry(id).and_modify(|whole| drop(whole.attempts.insert(attempt, trace)));
    }
    for found in rows(tx, include_str!("sql/export_duplicates.sql"), ids).await? {
        let (id, suppressed) = suppressed(&found)?;
        wholes.entry(id).and_modify(|whole| whole.suppressed.push(suppressed));
    }
    for found in rows(tx, include_str!("sql/export_holds.sql"), ids).await? {
        let (id, hold) = hold(&found)?;
        wholes.entry(id).and_modify(|whole| whole.hold = Some(hold));
    }
    for found in rows(tx, include_str!("sql/export_signals.sql"), ids).await? {
        let (id, signal) = signal::of_run(&found)?;
        wholes.entry(id).and_modify(|whole| whole.signals.push(signal));
    }
    for found in rows(tx, include_str!("sql/export_log.sql"), ids).await? {
        let (id, line) = notebook::of_run(&found)?;
        wholes.entry(id).and_modify(|whole| whole.log.push(line));
    }
    for found in rows(tx, include_str!("sql/export_cascades.sql"), ids).await? {
        let id = run_id(found.try_get(0).map_err(Fault::data)?);
        wholes.entry(id).and_modify(|whole| whole.cascades = true);
    }
    for whole in wholes.values_mut() {
        if let Some((attempt, trace)) = Trace::of_end(&whole.run) {
            whole.attempts.entry(attempt).or_insert(trace);
        }
    }
    Ok(wholes)
}

async fn rows(tx: &Tx, sql: &'static str, ids: &[uuid::Uuid]) -> Result<Vec<PgRow>, Fault> {
    tx.rows(sql, &[(&ids, Type::UUID_ARRAY)]).await
}

/// A run before anything that belongs to it is added.
fn bare(row: Row) -> WholeRun {
    WholeRun {
        run: row.run,
        records: Vec::new(),
        attempts: BTreeMap::new(),
        failed_step: row.failed_step,
        hold: None,
        suppressed: Vec::new(),
        signals: Vec::new(),
        log: Vec::new(),
        cascades: false,
    }
}

/// Names the run whose rows cannot be read: a copy without it would lose it.
fn unreadable(run: RunId, fault: Fault) -> Fault {
    match fault {
        Fault::Data(source) => Fault::data(format!("run {run} cannot be read: {source}")),
        fault => fault,
    }
}

fn trace(row: &PgRow) -> Result<(RunId, u32, Trace), Fault> {
    let mut columns = Columns { row, next: 0 };
    let run = run_id(columns.take()?);
    let attempt = u32::try_from(columns.take::<i32>()?).map_err(Fault::data)?;
    let build = columns.take()?;
    let settled: Option<String> = columns.take()?;
    let settled = settled.map(|text| column::settled(&text)).transpose().map_err(Fault::data)?;
    Ok((run, attempt, Trace { build, settled }))
}

fn suppressed(row: &PgRow) -> Result<(RunId, (RunId, Duplicate)), Fault> {
    let mut columns = Columns { row, next: 0 };
    let (run, start) = (run_id(columns.take()?), run_id(columns.take()?));
    let at = Timestamp::from_millis(columns.take()?);
    let duplicate = Duplicate { at, caller: columns.take()?, same_input: columns.take()? };
    Ok((run, (start, duplicate)))
}

fn hold(row: &PgRow) -> Result<(RunId, KeyHold), Fault> {
    let mut columns = Columns { row, next: 0 };
    let run = run_id(columns.take()?);
    let fingerprint: Vec<u8> = columns.take()?;
    let length = || Fault::data(format!("the fingerprint of run {run}'s key is damaged"));
    let fingerprint = <[u8; 32]>::try_from(fingerprint).map_err(|_| length())?;
    let expires_at = columns.time_or_none()?;
    Ok((run, KeyHold { fingerprint: Fingerprint(fingerprint), expires_at }))
}
