//! Looks at keys and ends, and the audit, on Postgres.
//!
//! Owns: the columns of each. Never decides anything.

use std::sync::Arc;

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Type;

use super::fault::Fault;
use super::row::{self, Columns, limit, run_id, run_uuid, signed};
use super::tx::{Param, Session};
use super::{PostgresStore, Shared};
use crate::clock::millis;
use crate::limits::{
    AUDIT_KEPT, AUDIT_PURGE_BATCH, ENDS_COUNTED_MAX, PAGE_ROWS_MAX, SERIES_RUNS_MAX,
};
use crate::store::looks::{Happened, by_minute, least_id};
use crate::store::{
    Answer, Audit, AuditPage, AuditRow, EndLook, Ends, Error, KeyConflict, KeyConflictPage,
    KeyLook, Looks, Minute, NewAudit, RunKey, RunKeyPage,
};
use crate::{AuditId, Timestamp};

const KEYS: &str = concat!(include_str!("sql/look_key.sql"), include_str!("sql/look_key_page.sql"));
const TOP: &str = concat!(include_str!("sql/look_key.sql"), include_str!("sql/look_key_top.sql"));

impl Looks for PostgresStore {
    fn run_keys(&self, look: KeyLook) -> Answer<'_, RunKeyPage> {
        self.home.answer(run_keys(Arc::clone(&self.shared), look))
    }

    fn top_keys(&self, most: usize) -> Answer<'_, Vec<RunKey>> {
        let shared = Arc::clone(&self.shared);
        self.home.answer(async move {
            let most = limit(most.clamp(1, PAGE_ROWS_MAX));
            let rows = Session::open(&shared).await?.rows(TOP, &[(&most, Type::INT8)]).await?;
            rows.iter().map(run_key).collect()
        })
    }

    fn key_conflicts(&self, before: Option<u64>, most: usize) -> Answer<'_, KeyConflictPage> {
        self.home.answer(key_conflicts(Arc::clone(&self.shared), before, most))
    }

    fn minutes(&self, since: Timestamp) -> Answer<'_, Vec<Minute>> {
        self.home.answer(minutes(Arc::clone(&self.shared), since))
    }

    fn ends(&self, look: EndLook) -> Answer<'_, Ends> {
        self.home.answer(ends(Arc::clone(&self.shared), look))
    }
}

async fn minutes(shared: Arc<Shared>, since: Timestamp) -> Result<Vec<Minute>, Fault> {
    let (most, time) = (limit(SERIES_RUNS_MAX), since.as_millis());
    let first = run_uuid(least_id(since));
    let mut session = Session::open(&shared).await?;
    let params: [Param<'_>; 3] = [(&first, Type::UUID), (&time, Type::INT8), (&most, Type::INT8)];
    let mut counts = Vec::new();
    for row in &session.rows(include_str!("sql/look_started.sql"), &params).await? {
        let mut columns = Columns { row, next: 0 };
        counts.push((columns.take()?, Happened::Started, columns.unsigned()?));
    }
    let params: [Param<'_>; 2] = [(&time, Type::INT8), (&most, Type::INT8)];
    for row in &session.rows(include_str!("sql/look_ended.sql"), &params).await? {
        let minute = Columns { row, next: 0 }.take()?;
        let count = Columns { row, next: 2 }.unsigned()?;
        counts.push((minute, Happened::Ended(row::state_of(row, 1)?), count));
    }
    Ok(by_minute(counts))
}

async fn ends(shared: Arc<Shared>, look: EndLook) -> Result<Ends, Fault> {
    let most = look.limit.clamp(1, ENDS_COUNTED_MAX);
    let (at, run) = look.after;
    let params: [Param<'_>; 5] = [
        (&look.state.as_str(), Type::TEXT),
        (&at.as_millis(), Type::INT8),
        (&run_uuid(run), Type::UUID),
        (&look.before.as_millis(), Type::INT8),
        (&limit(most), Type::INT8),
    ];
    let sql = include_str!("sql/look_ends.sql");
    let found = Session::open(&shared).await?.first(sql, &params).await?;
    let found = found.map(|row| {
        let mut columns = Columns { row: &row, next: 0 };
        let number = columns.unsigned()?;
        Ok::<_, Fault>((number, (columns.time()?, run_id(columns.take()?))))
    });
    Ok(Ends::of(found.transpose()?, most))
}

async fn run_keys(shared: Arc<Shared>, look: KeyLook) -> Result<RunKeyPage, Fault> {
    let most = look.limit.clamp(1, PAGE_ROWS_MAX);
    let (key, run) = look.begin();
    let params: [Param<'_>; 5] = [
        (&key, Type::TEXT),
        (&look.end(), Type::TEXT),
        (&run_uuid(run), Type::UUID),
        (&look.workflow, Type::TEXT),
        (&limit(most + 1), Type::INT8),
    ];
    let rows = Session::open(&shared).await?.rows(KEYS, &params).await?;
    let mut keys = rows.iter().map(run_key).collect::<Result<Vec<_>, _>>()?;
    let more = keys.len() > most;
    keys.truncate(most);
    Ok(RunKeyPage { keys, more })
}

async fn key_conflicts(
    shared: Arc<Shared>,
    before: Option<u64>,
    most: usize,
) -> Result<KeyConflictPage, Fault> {
    let most = most.clamp(1, PAGE_ROWS_MAX);
    let before = before.map_or(i64::MAX, signed);
    let params: [Param<'_>; 2] = [(&before, Type::INT8), (&limit(most + 1), Type::INT8)];
    let sql = include_str!("sql/look_conflicts.sql");
    let rows = Session::open(&shared).await?.rows(sql, &params).await?;
    let mut conflicts = rows.iter().map(conflict).collect::<Result<Vec<_>, _>>()?;
    let more = conflicts.len() > most;
    conflicts.truncate(most);
    Ok(KeyConflictPage { conflicts, more })
}

fn run_key(row: &PgRow) -> Result<RunKey, Fault> {
    let mut columns = Columns { row, next: 0 };
    let (workflow, key, run) = (columns.take()?, columns.take()?, run_id(columns.take()?));
    columns.next += 1;
    Ok(RunKey {
        workflow,
        key,
        run,
        state: row::state_of(row, 3)?,
        duplicates: columns.unsigned()?,
        conflicts: columns.unsigned()?,
        created_at: columns.time()?,
        expires_at: columns.time_or_none()?,
        held: columns.take()?,
    })
}

fn conflict(row: &PgRow) -> Result<KeyConflict, Fault> {
    let mut columns = Columns { row, next: 0 };
    Ok(KeyConflict {
        no: columns.unsigned()?,
        at: columns.time()?,
        caller: columns.take()?,
        workflow: columns.take()?,
        key: columns.take::<Option<String>>()?.unwrap_or_default(),
        run: run_id(columns.take()?),
        state: row::state_of(row, 6)?,
    })
}

impl Audit for PostgresStore {
    fn add_audit(&self, row: NewAudit) -> Answer<'_, ()> {
        self.home.answer(add_audit(Arc::clone(&self.shared), row))
    }

    fn end_audit(&self, id: AuditId, outcome: String, detail: Option<String>) -> Answer<'_, ()> {
        let shared = Arc::clone(&self.shared);
        self.home.answer(async move {
            let params: [Param<'_>; 3] =
                [(&uuid(id), Type::UUID), (&outcome, Type::TEXT), (&detail, Type::TEXT)];
            let sql = include_str!("sql/audit_end.sql");
            let found = Session::open(&shared).await?.first(sql, &params).await?;
            found.map(drop).ok_or_else(|| Error::NotFound.into())
        })
    }

    fn import_audits(&self, rows: Vec<AuditRow>) -> Answer<'_, u64> {
        self.home.answer(import_audits(Arc::clone(&self.shared), rows))
    }

    fn audits(&self, before: Option<AuditId>, most: usize) -> Answer<'_, AuditPage> {
        self.home.answer(audits(Arc::clone(&self.shared), before, most))
    }
}

/// Two statements, each its own transaction: that old rows go is not part of what is promised.
async fn add_audit(shared: Arc<Shared>, new: NewAudit) -> Result<(), Fault> {
    let mut session = Session::open(&shared).await?;
    let given = shared.clock.given();
    let over: [Param<'_>; 3] = [
        (&given, Type::INT8),
        (&millis(AUDIT_KEPT), Type::INT8),
        (&limit(AUDIT_PURGE_BATCH), Type::INT8),
    ];
    session.rows(include_str!("sql/audit_over.sql"), &over).await?;
    let params: [Param<'_>; 6] = [
        (&uuid(new.id), Type::UUID),
        (&given, Type::INT8),
        (&new.who, Type::TEXT),
        (&new.role, Type::TEXT),
        (&new.action, Type::TEXT),
        (&new.target, Type::TEXT),
    ];
    session.rows(include_str!("sql/audit_add.sql"), &params).await?;
    Ok(())
}

async fn import_audits(shared: Arc<Shared>, rows: Vec<AuditRow>) -> Result<u64, Fault> {
    let all = || rows.iter();
    let id: Vec<_> = all().map(|row| uuid(row.id)).collect();
    let at: Vec<_> = all().map(|row| row.at.as_millis()).collect();
    let text = |of: fn(&AuditRow) -> &str| all().map(of).collect::<Vec<_>>();
    let (who, role) = (text(|row| &row.who), text(|row| &row.role));
    let (action, target) = (text(|row| &row.action), text(|row| &row.target));
    let detail: Vec<_> = all().map(|row| row.detail.as_deref()).collect();
    let outcome: Vec<_> = all().map(|row| row.outcome.as_deref()).collect();
    let params: [Param<'_>; 8] = [
        (&id, Type::UUID_ARRAY),
        (&at, Type::INT8_ARRAY),
        (&who, Type::TEXT_ARRAY),
        (&role, Type::TEXT_ARRAY),
        (&action, Type::TEXT_ARRAY),
        (&target, Type::TEXT_ARRAY),
        (&detail, Type::TEXT_ARRAY),
        (&outcome, Type::TEXT_ARRAY),
    ];
    let sql = include_str!("sql/audit_import.sql");
    Ok(Session::open(&shared).await?.rows(sql, &params).await?.len() as u64)
}

async fn audits(
    shared: Arc<Shared>,
    before: Option<AuditId>,
    most: usize,
) -> Result<AuditPage, Fault> {
    let most = most.clamp(1, PAGE_ROWS_MAX);
    let before = uuid(before.unwrap_or(AuditId::from_u128(u128::MAX)));
    let params: [Param<'_>; 2] = [(&before, Type::UUID), (&limit(most + 1), Type::INT8)];
    let sql = include_str!("sql/audit_page.sql");
    let rows = Session::open(&shared).await?.rows(sql, &params).await?;
    let mut rows = rows.iter().map(audited).collect::<Result<Vec<_>, _>>()?;
    let more = rows.len() > most;
    rows.truncate(most);
    Ok(AuditPage { rows, more })
}

fn uuid(id: AuditId) -> uuid::Uuid {
    uuid::Uuid::from_u128(id.as_u128())
}

fn audited(row: &PgRow) -> Result<AuditRow, Fault> {
    let mut columns = Columns { row, next: 0 };
    Ok(AuditRow {
        id: AuditId::from_u128(columns.take::<uuid::Uuid>()?.as_u128()),
        at: columns.time()?,
        who: columns.take()?,
        role: columns.take()?,
        action: columns.take()?,
        target: columns.take()?,
        detail: columns.take()?,
        outcome: columns.take()?,
    })
}
