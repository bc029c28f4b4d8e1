//! Records, one write at a time: what a group commit did not take.
//!
//! Owns: the check against the lease, and telling a repeat from a clash. Never changes a record.

use std::collections::HashSet;

use tokio_postgres::types::Type;

use super::fault::Fault;
use super::row::{RecordRow, Row, run_uuid, signed};
use super::tx::{Param, Tx};
use crate::store::rules;
use crate::store::{Append, Conflict, Error, Lease, RecordRef};
use crate::{Record, RunState, Timestamp};

/// Adds records to a run's history.
pub(super) async fn record(tx: &mut Tx, lease: Lease, append: &Append) -> Result<(), Fault> {
    let records = append.records.as_slice();
    let held = tx.locked(lease.run).await?;
    let holds = held.as_ref().is_some_and(|row| holds(row, lease));
    let holds = holds && !tx.is_lost(lease.worker).await?;
    if holds && follows(tx, lease, &append.follows).await? {
        tx.guard(lease.worker);
        return add(tx, lease, records).await;
    }
    for record in records {
        if !is_there(tx, lease, record).await? {
            return Err(if holds { Error::HistoryLost } else { Error::LeaseLost }.into());
        }
    }
    Ok(())
}

/// Whether a run has all these records.
pub(super) async fn follows(tx: &Tx, lease: Lease, records: &[RecordRef]) -> Result<bool, Fault> {
    let run = run_uuid(lease.run);
    for RecordRef { seq, step } in records {
        let (seq, step) = (signed(*seq), &**step);
        let params: [Param<'_>; 3] = [(&run, Type::UUID), (&seq, Type::INT8), (&step, Type::TEXT)];
        if !tx.exists(include_str!("sql/record_follows.sql"), &params).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a run is held under this lease.
pub(super) fn holds(row: &Row, lease: Lease) -> bool {
    row.run.state == RunState::Running
        && row.run.worker == Some(lease.worker)
        && row.run.attempt == lease.attempt
}

/// Adds those records of which no identical one is there; refused, none.
pub(super) async fn add(tx: &Tx, lease: Lease, records: &[Record]) -> Result<(), Fault> {
    // Two in one place of one write are a clash, even alike.
    let mut places = HashSet::new();
    if !records.iter().all(|record| places.insert((&record.step, rules::slot(record)))) {
        return Err(Fault::Data(Box::new(Clash)));
    }
    for record in records {
        // An insert may have waited for a first write of the same record, whose answer was lost and
        // whose commit was still under way: it is there only after that.
        let added = is_there(tx, lease, record).await?
            || insert(tx, lease, record).await?
            || is_there(tx, lease, record).await?;
        if !added {
            // Undone as a whole, with what this write had added.
            return Err(Fault::Data(Box::new(Clash)));
        }
    }
    Ok(())
}

/// The holder itself wrote another record there.
#[derive(Debug)]
struct Clash;

impl std::fmt::Display for Clash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another record is there")
    }
}

impl std::error::Error for Clash {}

/// A clash, which undid its transaction, as the caller is told of it.
pub(super) fn as_conflict(fault: Fault, lease: Lease) -> Fault {
    match fault {
        Fault::Data(source) if source.is::<Clash>() => {
            Error::Conflict(Conflict::Record { run: lease.run }).into()
        }
        fault => fault,
    }
}

async fn insert(tx: &Tx, lease: Lease, record: &Record) -> Result<bool, Fault> {
    let row = RecordRow::of(lease, record)?;
    let voided_at = record.voided_at.map(Timestamp::as_millis);
    let mut params = row.params().to_vec();
    params.push((&voided_at, Type::INT8));
    tx.exists(include_str!("sql/record_add.sql"), &params).await
}

/// Whether a first write of this record left its row.
async fn is_there(tx: &Tx, lease: Lease, record: &Record) -> Result<bool, Fault> {
    let row = RecordRow::of(lease, record)?;
    let params: [Param<'_>; 8] = [
        (&row.run, Type::UUID),
        (&row.seq, Type::INT8),
        (&row.step, Type::TEXT),
        (&row.kind, Type::TEXT),
        (&row.body, Type::TEXT),
        (&row.tries, Type::INT4),
        (&row.attempt, Type::INT4),
        (&row.next_at, Type::INT8),
    ];
    tx.exists(include_str!("sql/record_same.sql"), &params).await
}
