//! Looks at keys and ends, and the audit, in the file.
//!
//! Owns: the columns of each. Never decides anything.

use rusqlite::params;

use super::fault::Fault;
use super::row::{self, Columns, limit, run_blob, run_id, signed};
use super::{Answer, SqliteStore};
use crate::clock::millis;
use crate::limits::{
    AUDIT_KEPT, AUDIT_PURGE_BATCH, ENDS_COUNTED_MAX, PAGE_ROWS_MAX, SERIES_RUNS_MAX,
};
use crate::store::looks::{Happened, by_minute, least_id};
use crate::store::{
    Audit, AuditPage, AuditRow, EndLook, Ends, Error, KeyConflict, KeyConflictPage, KeyLook, Looks,
    Minute, NewAudit, RunKey, RunKeyPage,
};
use crate::{AuditId, RunState, Timestamp};

const KEYS: &str = concat!(include_str!("sql/look_key.sql"), include_str!("sql/look_key_page.sql"));
const TOP: &str = concat!(include_str!("sql/look_key.sql"), include_str!("sql/look_key_top.sql"));

impl Looks for SqliteStore {
    fn run_keys(&self, look: KeyLook) -> Answer<'_, RunKeyPage> {
        self.people.look(move |conn| {
            let most = look.limit.clamp(1, PAGE_ROWS_MAX);
            let (key, run) = look.begin();
            let params = params![key, look.end(), run_blob(run), look.workflow, limit(most + 1)];
            let mut keys = row::all(conn, KEYS, params, run_key)?;
            let more = keys.len() > most;
            keys.truncate(most);
            Ok(RunKeyPage { keys, more })
        })
    }

    fn top_keys(&self, most: usize) -> Answer<'_, Vec<RunKey>> {
        let most = limit(most.clamp(1, PAGE_ROWS_MAX));
        self.people.look(move |conn| row::all(conn, TOP, [most], run_key))
    }

    fn key_conflicts(&self, before: Option<u64>, most: usize) -> Answer<'_, KeyConflictPage> {
        self.people.look(move |conn| {
            let most = most.clamp(1, PAGE_ROWS_MAX);
            let params = params![before.map_or(i64::MAX, signed), limit(most + 1)];
            let sql = include_str!("sql/look_conflicts.sql");
            let mut conflicts = row::all(conn, sql, params, conflict)?;
            let more = conflicts.len() > most;
            conflicts.truncate(most);
            Ok(KeyConflictPage { conflicts, more })
        })
    }

    fn minutes(&self, since: Timestamp) -> Answer<'_, Vec<Minute>> {
        self.people.look(move |conn| {
            let (most, time) = (limit(SERIES_RUNS_MAX), since.as_millis());
            let params = params![run_blob(least_id(since)), time, most];
            let sql = include_str!("sql/look_started.sql");
            let mut counts = row::all(conn, sql, params, |row| {
                Ok((row.get(0)?, Happened::Started, Columns { row, next: 1 }.unsigned()?))
            })?;
            let sql = include_str!("sql/look_ended.sql");
            counts.extend(row::all(conn, sql, params![time, most], |row| {
                let mut columns = Columns { row, next: 0 };
                let minute = columns.take()?;
                Ok((minute, Happened::Ended(state(&mut columns)?), columns.unsigned()?))
            })?);
            Ok(by_minute(counts))
        })
    }

    fn ends(&self, look: EndLook) -> Answer<'_, Ends> {
        self.people.look(move |conn| {
            let most = look.limit.clamp(1, ENDS_COUNTED_MAX);
            let (at, run) = look.after;
            let (at, before) = (at.as_millis(), look.before.as_millis());
            let params = params![look.state.as_str(), at, run_blob(run), before, limit(most)];
            let found = row::all(conn, include_str!("sql/look_ends.sql"), params, |row| {
                let mut columns = Columns { row, next: 0 };
                let number = columns.unsigned()?;
                Ok((number, (columns.time()?, run_id(columns.take()?))))
            })?;
            Ok(Ends::of(found.into_iter().next(), most))
        })
    }
}

fn run_key(row: &rusqlite::Row<'_>) -> Result<RunKey, Fault> {
    let mut columns = Columns { row, next: 0 };
    Ok(RunKey {
        workflow: columns.take()?,
        key: columns.take()?,
        run: run_id(columns.take()?),
        state: state(&mut columns)?,
        duplicates: columns.unsigned()?,
        conflicts: columns.unsigned()?,
        created_at: columns.time()?,
        expires_at: columns.time_or_none()?,
        held: columns.take()?,
    })
}

fn conflict(row: &rusqlite::Row<'_>) -> Result<KeyConflict, Fault> {
    let mut columns = Columns { row, next: 0 };
    Ok(KeyConflict {
        no: columns.unsigned()?,
        at: columns.time()?,
        caller: columns.take()?,
        workflow: columns.take()?,
        key: columns.take::<Option<String>>()?.unwrap_or_default(),
        run: run_id(columns.take()?),
        state: state(&mut columns)?,
    })
}

fn state(columns: &mut Columns<'_, '_>) -> Result<RunState, Fault> {
    columns.take::<String>()?.parse().map_err(Fault::data)
}

impl Audit for SqliteStore {
    fn add_audit(&self, new: NewAudit) -> Answer<'_, ()> {
        self.small(move |tx| {
            let now = tx.now.as_millis();
            let over = params![now - millis(AUDIT_KEPT), limit(AUDIT_PURGE_BATCH)];
            tx.execute(include_str!("sql/audit_over.sql"), over)?;
            let NewAudit { id, who, role, action, target } = &new;
            let params = params![blob(*id), now, who, role, action, target];
            tx.execute(include_str!("sql/audit_add.sql"), params)?;
            Ok(())
        })
    }

    fn end_audit(&self, id: AuditId, outcome: String, detail: Option<String>) -> Answer<'_, ()> {
        self.small(move |tx| {
            let params = params![blob(id), outcome, detail];
            match tx.execute(include_str!("sql/audit_end.sql"), params)? {
                0 => Err(Error::NotFound.into()),
                _ => Ok(()),
            }
        })
    }

    fn import_audits(&self, rows: Vec<AuditRow>) -> Answer<'_, u64> {
        self.small(move |tx| {
            let mut new = 0;
            for row in &rows {
                let AuditRow { id, at, who, role, action, target, detail, outcome } = row;
                let at = at.as_millis();
                let params = params![blob(*id), at, who, role, action, target, detail, outcome];
                new += tx.execute(include_str!("sql/audit_import.sql"), params)? as u64;
            }
            Ok(new)
        })
    }

    fn audits(&self, before: Option<AuditId>, most: usize) -> Answer<'_, AuditPage> {
        self.people.look(move |conn| {
            let most = most.clamp(1, PAGE_ROWS_MAX);
            let before = before.unwrap_or(AuditId::from_u128(u128::MAX));
            let params = params![blob(before), limit(most + 1)];
            let mut rows = row::all(conn, include_str!("sql/audit_page.sql"), params, audited)?;
            let more = rows.len() > most;
            rows.truncate(most);
            Ok(AuditPage { rows, more })
        })
    }
}

fn blob(id: AuditId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

fn audited(row: &rusqlite::Row<'_>) -> Result<AuditRow, Fault> {
    let mut columns = Columns { row, next: 0 };
    Ok(AuditRow {
        id: AuditId::from_u128(u128::from_be_bytes(columns.take()?)),
        at: columns.time()?,
        who: columns.take()?,
        role: columns.take()?,
        action: columns.take()?,
        target: columns.take()?,
        detail: columns.take()?,
        outcome: columns.take()?,
    })
}
