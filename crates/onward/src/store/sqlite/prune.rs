//! Deleting runs that ended long ago, or one of them, with all that belongs to them; or only its key.
//!
//! Owns: which rows belong to a run. Never deletes a run that has not ended.

use std::collections::BTreeMap;

use rusqlite::params;

use super::fault::Fault;
use super::row;
use super::sweep::cascade;
use super::tx::Tx;
use super::{Answer, SqliteStore};
use crate::limits::{PRUNE_BATCH_MAX, PRUNE_ROWS_MAX};
use crate::store::{Conflict, Delete, Error, Prune, Pruned};
use crate::{RunId, RunState};

/// Deletes a bounded batch of old runs, or counts them.
pub(super) fn prune(tx: &mut Tx<'_>, prune: &Prune) -> Result<Pruned, Fault> {
    let ended_by = tx.now.as_millis() - prune.older_than_ms;
    let states: Vec<_> = RunState::ALL.into_iter().filter(|s| prune.covers(*s)).collect();
    if prune.dry_run {
        return count(tx, &states, ended_by);
    }
    if cascade(tx)? {
        return Ok(Pruned { runs: 0, more: true });
    }
    let limit = prune.limit.clamp(1, PRUNE_BATCH_MAX);
    let mut old: Vec<(i64, Vec<u8>, i64)> = Vec::new();
    for state in states {
        let params = params![state.as_str(), ended_by, row::limit(limit + 1)];
        old.append(&mut row::all(tx.conn, include_str!("sql/prune_old.sql"), params, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?);
    }
    old.sort_unstable();
    let more = old.len() > limit;
    old.truncate(limit);
    let (mut runs, mut rows) = (0, 0);
    for (_, _, no) in &old {
        rows += delete(tx, *no)?;
        runs += 1;
        if rows >= PRUNE_ROWS_MAX {
            break;
        }
    }
    Ok(Pruned { runs: runs as u64, more: more || runs < old.len() })
}

impl Delete for SqliteStore {
    fn delete_run(&self, run: RunId) -> Answer<'_, bool> {
        Box::pin(async move {
            loop {
                if let Some(was_there) = self.large(move |tx| delete_one(tx, run)).await? {
                    return Ok(was_there);
                }
            }
        })
    }

    fn release_run_key(&self, run: RunId) -> Answer<'_, bool> {
        self.small(move |tx| match row::by_id(tx.conn, run)? {
            None => Ok(false),
            Some(row) if !row.run.state.is_final() => {
                Err(Error::Conflict(Conflict::NotEnded { run }).into())
            }
            Some(row) => {
                let params = params![row.run.workflow, row.run.key, row.no, tx.now.as_millis()];
                let had = row::first(tx.conn, include_str!("sql/prune_key.sql"), params, |row| {
                    Ok(row.get::<_, bool>(0)?)
                })?;
                tx.changed(run);
                Ok(had == Some(true))
            }
        })
    }
}

/// Deletes a run that has ended; says whether it was there, or nothing while children of it, or of others,
/// are still to be asked to end.
fn delete_one(tx: &mut Tx<'_>, run: RunId) -> Result<Option<bool>, Fault> {
    let Some(row) = row::by_id(tx.conn, run)? else { return Ok(Some(false)) };
    if !row.run.state.is_final() {
        return Err(Error::Conflict(Conflict::NotEnded { run }).into());
    }
    if cascade(tx)? {
        return Ok(None);
    }
    delete(tx, row.no)?;
    tx.changed(run);
    Ok(Some(true))
}

fn count(tx: &Tx<'_>, states: &[RunState], ended_by: i64) -> Result<Pruned, Fault> {
    let mut runs = 0;
    for state in states {
        let params = params![state.as_str(), ended_by];
        let sql = include_str!("sql/prune_count.sql");
        runs += row::first(tx.conn, sql, params, |row| Ok(row.get::<_, i64>(0)?))?.unwrap_or(0);
    }
    Ok(Pruned { runs: u64::try_from(runs).unwrap_or(0), more: false })
}

/// Deletes a run with all that belongs to it; gives the rows that had most of it.
fn delete(tx: &mut Tx<'_>, no: i64) -> Result<usize, Fault> {
    let named = row::first(tx.conn, include_str!("sql/prune_run.sql"), [no], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
    })?;
    if let Some((workflow, Some(key))) = named {
        let params = params![workflow, key, no, tx.now.as_millis()];
        row::first(tx.conn, include_str!("sql/prune_key.sql"), params, |_| Ok(()))?;
    }
    let tags: Option<Option<String>> =
        row::first(tx.conn, include_str!("sql/prune_input.sql"), [no], |row| Ok(row.get(0)?))?;
    if let Some(tags) = tags.flatten() {
        // Tags that cannot be read leave entries behind that no list shows.
        let tags: BTreeMap<String, String> = serde_json::from_str(&tags).unwrap_or_default();
        for (name, value) in tags {
            tx.execute(include_str!("sql/prune_tag.sql"), params![name, value, no])?;
        }
    }
    let mut rows = 0;
    for sql in [
        include_str!("sql/prune_output.sql"),
        include_str!("sql/prune_records.sql"),
        include_str!("sql/prune_attempts.sql"),
        include_str!("sql/prune_duplicates.sql"),
        include_str!("sql/prune_signals.sql"),
        include_str!("sql/prune_log.sql"),
    ] {
        rows += tx.execute(sql, [no])?;
    }
    Ok(rows)
}
