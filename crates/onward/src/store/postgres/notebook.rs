//! What runs note on themselves.
//!
//! Owns: a run's log, and its tags once it changes them. Never writes for whoever does not hold the
//! run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Type;

use super::fault::Fault;
use super::import::add_log;
use super::record::holds;
use super::row::{Columns, Row, json_text, limit, run_id, run_uuid, signed};
use super::tx::{Param, Session, Tx};
use super::{PostgresStore, Shared, row};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::notebook::{apply, forgotten, is_there};
use crate::store::{Answer, Error, Lease, LogPage, Note, Notebook};
use crate::{LogLine, RunId, Timestamp};

impl Notebook for PostgresStore {
    fn note(&self, lease: Lease, note: Note) -> Answer<'_, ()> {
        self.in_transaction((lease, note), |tx, (lease, note)| Box::pin(write(tx, *lease, note)))
    }

    fn log(&self, run: RunId, after: u64, limit: usize) -> Answer<'_, LogPage> {
        self.home.answer(log(Arc::clone(&self.shared), run, after, limit))
    }
}

async fn write(tx: &mut Tx, lease: Lease, note: &Note) -> Result<(), Fault> {
    let mut row = tx.locked(lease.run).await?.ok_or(Error::LeaseLost)?;
    if !holds(&row, lease) || tx.is_lost(lease.worker).await? {
        let before = note.lines.first().map_or(0, |line| line.no.saturating_sub(1));
        let found = tx.rows(LINES, &lines_params(lease.run, before, i64::MAX).each()).await?;
        let late = is_there(&row.run, &read(&found)?, note);
        return if late { Ok(()) } else { Err(Error::LeaseLost.into()) };
    }
    tx.guard(lease.worker);
    let tags = row.run.tags.clone();
    if apply(&mut row.run, note) {
        change_tags(tx, &row, &tags).await?;
    }
    tx.save(&row).await?;
    let lines: Vec<_> = note.lines.iter().map(|line| (lease.run, line)).collect();
    if !lines.is_empty() {
        add_log(tx, &lines).await?;
    }
    let forgotten = signed(forgotten(&row.run));
    if forgotten > 0 {
        let params: [Param<'_>; 2] = [(&run_uuid(lease.run), Type::UUID), (&forgotten, Type::INT8)];
        tx.rows(include_str!("sql/log_forget.sql"), &params).await?;
    }
    tx.changed(lease.run);
    Ok(())
}

/// Writes the tags of a run that had others before.
async fn change_tags(tx: &Tx, row: &Row, before: &BTreeMap<String, String>) -> Result<(), Fault> {
    let id = run_uuid(row.run.id);
    let params: [Param<'_>; 2] = [(&id, Type::UUID), (&json_text(&row.run.tags)?, Type::TEXT)];
    tx.rows(include_str!("sql/note_tags.sql"), &params).await?;
    for (name, value) in &row.run.tags {
        let old = before.get(name);
        if old == Some(value) {
            continue;
        }
        if let Some(old) = old {
            let params: [Param<'_>; 3] = [(name, Type::TEXT), (old, Type::TEXT), (&id, Type::UUID)];
            tx.rows(include_str!("sql/note_tag_drop.sql"), &params).await?;
        }
        let params: [Param<'_>; 3] = [(name, Type::TEXT), (value, Type::TEXT), (&id, Type::UUID)];
        tx.rows(include_str!("sql/start_tag.sql"), &params).await?;
    }
    Ok(())
}

const LINES: &str = include_str!("sql/log.sql");

struct LinesParams {
    run: uuid::Uuid,
    after: i64,
    limit: i64,
}

fn lines_params(run: RunId, after: u64, limit: i64) -> LinesParams {
    LinesParams { run: run_uuid(run), after: signed(after), limit }
}

impl LinesParams {
    fn each(&self) -> [Param<'_>; 3] {
        [(&self.run, Type::UUID), (&self.after, Type::INT8), (&self.limit, Type::INT8)]
    }
}

async fn log(shared: Arc<Shared>, run: RunId, after: u64, most: usize) -> Result<LogPage, Fault> {
    let mut session = Session::open(&shared).await?;
    let most = most.clamp(1, PAGE_ROWS_MAX);
    let found = session.rows(LINES, &lines_params(run, after, limit(most + 1)).each()).await?;
    let mut lines = read(&found)?;
    if lines.is_empty() {
        let there = session.first(row::RUN_BY_ID, &[(&run_uuid(run), Type::UUID)]).await?;
        there.ok_or(Error::NotFound)?;
    }
    let more = lines.len() > most;
    lines.truncate(most);
    Ok(LogPage { lines, more })
}

fn read(found: &[PgRow]) -> Result<Vec<LogLine>, Fault> {
    found.iter().map(|row| line(&mut Columns { row, next: 0 })).collect()
}

/// A line, with its run in the last column.
pub(super) fn of_run(row: &PgRow) -> Result<(RunId, LogLine), Fault> {
    let mut columns = Columns { row, next: 0 };
    let line = line(&mut columns)?;
    Ok((run_id(columns.take()?), line))
}

fn line(columns: &mut Columns<'_>) -> Result<LogLine, Fault> {
    let no = u64::try_from(columns.take::<i64>()?).map_err(Fault::data)?;
    let at = Timestamp::from_millis(columns.take()?);
    let step = columns.take()?;
    let try_number: Option<i32> = columns.take()?;
    let try_number = try_number.map(u32::try_from).transpose().map_err(Fault::data)?;
    Ok(LogLine { no, at, step, try_number, text: columns.take()? })
}
