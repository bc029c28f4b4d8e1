//! What runs note on themselves.
//!
//! Owns: a run's log, and its tags once it changes them. Never writes for whoever does not hold the
//! run.

use rusqlite::{Connection, params};

use super::SqliteStore;
use super::fault::Fault;
use super::record::is_held;
use super::row::{self, Row, json_text, signed};
use super::tx::Tx;
use crate::limits::PAGE_ROWS_MAX;
use crate::store::notebook::{apply, forgotten, is_there};
use crate::store::{Answer, Error, Lease, LogPage, Note, Notebook};
use crate::{LogLine, RunId, Timestamp};

impl Notebook for SqliteStore {
    fn note(&self, lease: Lease, note: Note) -> Answer<'_, ()> {
        self.small(move |tx| write(tx, lease, &note))
    }

    fn log(&self, run: RunId, after: u64, limit: usize) -> Answer<'_, LogPage> {
        self.people.look(move |conn| {
            let row = row::by_id(conn, run)?.ok_or(Error::NotFound)?;
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let mut lines = lines(conn, row.no, after, row::limit(limit + 1))?;
            let more = lines.len() > limit;
            lines.truncate(limit);
            Ok(LogPage { lines, more })
        })
    }
}

fn write(tx: &mut Tx<'_>, lease: Lease, note: &Note) -> Result<(), Fault> {
    let mut row = row::by_id(tx.conn, lease.run)?.ok_or(Error::LeaseLost)?;
    if !is_held(tx, lease)? || tx.is_lost(lease.worker)? {
        let before = note.lines.first().map_or(0, |line| line.no.saturating_sub(1));
        let there = all(tx.conn, row.no, before)?;
        let late = is_there(&row.run, &there, note);
        return if late { Ok(()) } else { Err(Error::LeaseLost.into()) };
    }
    let tags = row.run.tags.clone();
    if apply(&mut row.run, note) {
        change_tags(tx, &row, &tags)?;
    }
    row.save(tx.conn)?;
    for line in &note.lines {
        add(tx, row.no, line)?;
    }
    let forgotten = forgotten(&row.run);
    if forgotten > 0 {
        tx.execute(include_str!("sql/log_forget.sql"), params![row.no, signed(forgotten)])?;
    }
    tx.changed(lease.run);
    Ok(())
}

/// Writes the tags of a run that had others before.
fn change_tags(
    tx: &Tx<'_>,
    row: &Row,
    before: &std::collections::BTreeMap<String, String>,
) -> Result<(), Fault> {
    tx.execute(include_str!("sql/note_tags.sql"), params![row.no, json_text(&row.run.tags)?])?;
    for (name, value) in &row.run.tags {
        let old = before.get(name);
        if old == Some(value) {
            continue;
        }
        if let Some(old) = old {
            tx.execute(include_str!("sql/prune_tag.sql"), params![name, old, row.no])?;
        }
        tx.execute(include_str!("sql/start_tag.sql"), params![name, value, row.no])?;
    }
    Ok(())
}

/// Adds a line to a run's log.
pub(super) fn add(tx: &Tx<'_>, run: i64, line: &LogLine) -> Result<(), Fault> {
    let at = line.at.as_millis();
    let params = params![run, signed(line.no), at, line.step, line.try_number, line.text];
    tx.execute(include_str!("sql/log_add.sql"), params)?;
    Ok(())
}

/// The lines of a run's log after one of them.
pub(super) fn all(conn: &Connection, run: i64, after: u64) -> Result<Vec<LogLine>, Fault> {
    lines(conn, run, after, i64::MAX)
}

fn lines(conn: &Connection, run: i64, after: u64, limit: i64) -> Result<Vec<LogLine>, Fault> {
    let params = params![run, signed(after), limit];
    row::all(conn, include_str!("sql/log.sql"), params, |row| {
        Ok(LogLine {
            no: u64::try_from(row.get::<_, i64>(0)?).map_err(Fault::data)?,
            at: Timestamp::from_millis(row.get(1)?),
            step: row.get(2)?,
            try_number: row.get(3)?,
            text: row.get(4)?,
        })
    })
}
