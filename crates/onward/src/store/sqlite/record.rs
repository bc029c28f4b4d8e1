//! Records: what a step did, written once, under a lease.
//!
//! Owns: the check against the lease, and telling a repeat from a clash. Never changes a record.

use rusqlite::params;

use super::fault::Fault;
use super::row::{self, run_blob, signed, worker_blob};
use super::tx::Tx;
use crate::store::{Append, Conflict, Error, Lease, RecordRef};
use crate::store::{column, rules};
use crate::{Record, Timestamp};

/// Adds records to a run's history.
///
/// The usual case costs one look at the run's row and one insert per record; only when the fence
/// or an index refuses does it look at what is there.
pub(super) fn record(tx: &mut Tx<'_>, lease: Lease, append: &Append) -> Result<(), Fault> {
    let records = append.records.as_slice();
    let held =
        row::first(tx.conn, include_str!("sql/record_fence.sql"), [run_blob(lease.run)], |row| {
            Ok((row.get::<_, i64>(0)?, holds(row, lease)?))
        })?;
    let (no, holds) = held.unzip();
    let no = no.unwrap_or_default();
    let holds = holds == Some(true) && !tx.is_lost(lease.worker)?;
    if holds && follows(tx, no, &append.follows)? {
        return add(tx, lease, no, records);
    }
    for record in records {
        if !is_there(tx, lease, no, record)? {
            return Err(if holds { Error::HistoryLost } else { Error::LeaseLost }.into());
        }
    }
    Ok(())
}

/// Whether a run has all these records.
pub(super) fn follows(tx: &Tx<'_>, no: i64, records: &[RecordRef]) -> Result<bool, Fault> {
    for RecordRef { seq, step } in records {
        let params = params![no, signed(*seq), &**step];
        if !tx.exists(include_str!("sql/record_follows.sql"), params)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a run is held under this lease, but for its worker's being lost.
pub(super) fn is_held(tx: &Tx<'_>, lease: Lease) -> Result<bool, Fault> {
    let sql = include_str!("sql/record_fence.sql");
    let held = row::first(tx.conn, sql, [run_blob(lease.run)], |row| holds(row, lease))?;
    Ok(held.unwrap_or(false))
}

/// Whether a row that begins with number, state, attempt and worker is held under this lease.
pub(super) fn holds(row: &rusqlite::Row<'_>, lease: Lease) -> Result<bool, Fault> {
    Ok(row.get_ref(1)?.as_bytes().is_ok_and(|state| state == b"running")
        && row.get::<_, u32>(2)? == lease.attempt
        && row.get::<_, Option<[u8; 16]>>(3)? == Some(worker_blob(lease.worker)))
}

/// Adds records under a lease that holds. Refused, it has written nothing.
pub(super) fn add(tx: &mut Tx<'_>, lease: Lease, no: i64, records: &[Record]) -> Result<(), Fault> {
    for (place, record) in records.iter().enumerate() {
        if insert(tx, lease.attempt, no, record)? == Inserted::Refused {
            for earlier in &records[..place] {
                let params = params![no, earlier.step, signed(rules::slot(earlier))];
                tx.execute(include_str!("sql/record_remove.sql"), params)?;
            }
            return add_new(tx, lease, no, records);
        }
    }
    Ok(())
}

/// Adds those records of which no identical one is there, or none when one of them clashes.
fn add_new(tx: &mut Tx<'_>, lease: Lease, no: i64, records: &[Record]) -> Result<(), Fault> {
    let mut new = Vec::new();
    for record in records {
        if !is_there(tx, lease, no, record)? {
            new.push(record);
        }
    }
    for (place, record) in new.iter().enumerate() {
        let params = params![no, record.step, signed(rules::slot(record))];
        let among_new = (new[..place].iter()).any(|earlier| {
            earlier.step == record.step && rules::slot(earlier) == rules::slot(record)
        });
        if among_new || tx.exists(include_str!("sql/record_clash.sql"), params)? {
            return Err(Error::Conflict(Conflict::Record { run: lease.run }).into());
        }
    }
    for record in new {
        if insert(tx, lease.attempt, no, record)? == Inserted::Refused {
            return Err(Fault::data(format!("record {} of run {no} is refused", record.seq)));
        }
    }
    Ok(())
}

/// Adds a record as it stood in another store, under whatever attempt made it.
pub(super) fn add_whole(tx: &Tx<'_>, no: i64, record: &Record) -> Result<(), Fault> {
    match insert(tx, record.attempt, no, record)? {
        Inserted::Done => Ok(()),
        Inserted::Refused => {
            Err(Fault::data(format!("record {} of step {:?} is refused", record.seq, record.step)))
        }
    }
}

#[derive(PartialEq, Eq)]
enum Inserted {
    Done,
    /// An index has such a record; nothing was written.
    Refused,
}

fn insert(tx: &Tx<'_>, attempt: u32, no: i64, record: &Record) -> Result<Inserted, Fault> {
    let (body, next_at) = column::of_entry(&record.entry).map_err(Fault::data)?;
    let result = tx.conn.prepare_cached(include_str!("sql/record_add.sql"))?.execute(params![
        no,
        signed(record.seq),
        record.step,
        signed(rules::slot(record)),
        column::of_kind(record),
        body,
        record.try_number,
        attempt,
        record.began_at.as_millis(),
        record.at.as_millis(),
        next_at,
        record.foreign,
        record.voided_at.map(Timestamp::as_millis),
    ]);
    tx.wrote(record.bytes());
    match result {
        Ok(_) => Ok(Inserted::Done),
        Err(error) if Fault::is_constraint(&error) => Ok(Inserted::Refused),
        Err(error) => Err(error.into()),
    }
}

/// Whether a first write of this record left its row.
fn is_there(tx: &Tx<'_>, lease: Lease, no: i64, record: &Record) -> Result<bool, Fault> {
    let (body, next_at) = column::of_entry(&record.entry).map_err(Fault::data)?;
    let params = params![
        no,
        signed(record.seq),
        record.step,
        column::of_kind(record),
        body,
        record.try_number,
        lease.attempt,
        next_at,
    ];
    tx.exists(include_str!("sql/record_same.sql"), params)
}
