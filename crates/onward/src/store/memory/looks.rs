//! Looks at keys and ends, the audit, and deleting one run, in memory.
//!
//! Owns: scans over what there is, which say what the verbs mean. Never keeps an index.

use std::ops::Bound;

use super::*;
use crate::AuditId;
use crate::clock::millis;
use crate::limits::{AUDIT_KEPT, AUDIT_PURGE_BATCH, ENDS_COUNTED_MAX};
use crate::store::looks::{Happened, MINUTE_MS, by_minute};

impl Looks for MemoryStore {
    fn run_keys(&self, look: KeyLook) -> Answer<'_, RunKeyPage> {
        self.read(|state| {
            let (begin, end) = (look.begin(), look.end());
            let of_workflow =
                |key: &RunKey| look.workflow.as_ref().is_none_or(|name| *name == key.workflow);
            let mut keys: Vec<_> = state.run_keys().filter(of_workflow).collect();
            keys.retain(|key| (&key.key, key.run) > (&begin.0, begin.1) && key.key < end);
            keys.sort_by(|a, b| (&a.key, a.run).cmp(&(&b.key, b.run)));
            let limit = look.limit.clamp(1, PAGE_ROWS_MAX);
            let more = keys.len() > limit;
            keys.truncate(limit);
            Ok(RunKeyPage { keys, more })
        })
    }

    fn top_keys(&self, limit: usize) -> Answer<'_, Vec<RunKey>> {
        self.read(|state| {
            let mut keys: Vec<_> = state.run_keys().filter(|key| key.duplicates > 0).collect();
            keys.sort_by_key(|key| std::cmp::Reverse((key.duplicates, key.run)));
            keys.truncate(limit.clamp(1, PAGE_ROWS_MAX));
            Ok(keys)
        })
    }

    fn key_conflicts(&self, before: Option<u64>, limit: usize) -> Answer<'_, KeyConflictPage> {
        self.read(|state| {
            let mut all: Vec<_> = state.runs.values().flat_map(conflicts).collect();
            all.sort_by_key(|(start, conflict)| (conflict.at, *start));
            let mut conflicts: Vec<_> = (1..)
                .zip(all)
                .map(|(no, (_, conflict))| KeyConflict { no, ..conflict })
                .filter(|conflict| before.is_none_or(|before| conflict.no < before))
                .collect();
            conflicts.reverse();
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let more = conflicts.len() > limit;
            conflicts.truncate(limit);
            Ok(KeyConflictPage { conflicts, more })
        })
    }

    fn minutes(&self, since: Timestamp) -> Answer<'_, Vec<Minute>> {
        self.read(|state| {
            let minute = |at: Timestamp| at.as_millis() / MINUTE_MS;
            let runs = || state.runs.values().map(|row| &row.run);
            let started = runs().filter(|run| run.created_at >= since);
            let started = started.map(|run| (minute(run.created_at), Happened::Started, 1));
            let ended = runs().filter_map(|run| {
                let at = run.finished_at.filter(|at| *at >= since)?;
                Some((minute(at), Happened::Ended(run.state), 1))
            });
            Ok(by_minute(started.chain(ended)))
        })
    }

    fn ends(&self, look: EndLook) -> Answer<'_, Ends> {
        self.read(|state| {
            let most = look.limit.clamp(1, ENDS_COUNTED_MAX);
            let runs = state.runs.values().map(|row| &row.run);
            let ended = runs.filter(|run| run.state == look.state);
            let ended = ended.filter_map(|run| Some((run.finished_at?, run.id)));
            let mut ended: Vec<_> =
                ended.filter(|end| *end > look.after && end.0 < look.before).collect();
            ended.sort_unstable();
            ended.truncate(most);
            let found = ended.last().map(|last| (ended.len() as u64, *last));
            Ok(Ends::of(found, most))
        })
    }
}

impl State {
    fn run_keys(&self) -> impl Iterator<Item = RunKey> {
        self.runs.values().filter_map(|row| {
            let (workflow, key) = (row.run.workflow.clone(), row.run.key.clone()?);
            let held = self.keys.get(&(workflow.clone(), key.clone()));
            let held = held.filter(|held| held.run == row.run.id);
            let other = row.duplicates.iter().filter(|(_, kept)| !kept.same_input).count();
            Some(RunKey {
                workflow,
                key,
                run: row.run.id,
                state: row.run.state,
                duplicates: row.run.duplicates,
                conflicts: other as u64,
                created_at: row.run.created_at,
                expires_at: held.and_then(|held| held.expires_at),
                held: held.is_some(),
            })
        })
    }
}

/// The kept starts with another input, each with the name of the start; not numbered yet.
fn conflicts(row: &Row) -> impl Iterator<Item = (RunId, KeyConflict)> {
    row.duplicates.iter().filter(|(_, kept)| !kept.same_input).map(|(start, kept)| {
        let conflict = KeyConflict {
            no: 0,
            at: kept.at,
            caller: kept.caller.clone(),
            workflow: row.run.workflow.clone(),
            key: row.run.key.clone().unwrap_or_default(),
            run: row.run.id,
            state: row.run.state,
        };
        (*start, conflict)
    })
}

impl Delete for MemoryStore {
    fn delete_run(&self, run: RunId) -> Answer<'_, bool> {
        self.transact(|state, now| match state.runs.get(&run) {
            None => Ok(false),
            Some(row) if !row.run.state.is_final() => {
                Err(Error::Conflict(Conflict::NotEnded { run }))
            }
            Some(_) => {
                while sweep::cascade(state, now)? {}
                state.runs.remove(&run);
                state.keys.retain(|_, key| key.run != run);
                Ok(true)
            }
        })
    }

    fn release_run_key(&self, run: RunId) -> Answer<'_, bool> {
        self.transact(|state, now| match state.runs.get(&run).map(|row| &row.run) {
            None => Ok(false),
            Some(ended) if !ended.state.is_final() => {
                Err(Error::Conflict(Conflict::NotEnded { run }))
            }
            Some(Run { key: None, .. }) => Ok(false),
            Some(Run { key: Some(key), workflow, .. }) => {
                let name = (workflow.clone(), key.clone());
                let held = state.keys.get(&name).filter(|held| held.run == run);
                let had = held.map(|held| held.expires_at.is_none_or(|expires| expires > now));
                if had.is_some() {
                    state.keys.remove(&name);
                }
                Ok(had == Some(true))
            }
        })
    }
}

impl Audit for MemoryStore {
    fn add_audit(&self, row: NewAudit) -> Answer<'_, ()> {
        self.transact_quietly(|state, now| {
            let oldest = state.audit.iter().take(AUDIT_PURGE_BATCH);
            let kept = Timestamp::from_millis(now.as_millis() - millis(AUDIT_KEPT));
            let over: Vec<_> = oldest.filter(|(_, row)| row.at < kept).map(|(id, _)| *id).collect();
            over.iter().for_each(|id| drop(state.audit.remove(id)));
            state.audit.entry(row.id).or_insert_with(|| AuditRow::of(row, now));
            Ok(())
        })
    }

    fn end_audit(&self, id: AuditId, outcome: String, detail: Option<String>) -> Answer<'_, ()> {
        self.transact_quietly(|state, _| {
            let row = state.audit.get_mut(&id).ok_or(Error::NotFound)?;
            if row.outcome.is_none() {
                (row.outcome, row.detail) = (Some(outcome), detail);
            }
            Ok(())
        })
    }

    fn import_audits(&self, rows: Vec<AuditRow>) -> Answer<'_, u64> {
        self.transact_quietly(|state, _| {
            let before = state.audit.len();
            for row in rows {
                state.audit.entry(row.id).or_insert(row);
            }
            Ok((state.audit.len() - before) as u64)
        })
    }

    fn audits(&self, before: Option<AuditId>, limit: usize) -> Answer<'_, AuditPage> {
        self.read(|state| {
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let end = before.map_or(Bound::Unbounded, Bound::Excluded);
            let rows = state.audit.range((Bound::Unbounded, end)).rev().map(|(_, row)| row);
            let mut rows: Vec<_> = rows.take(limit + 1).cloned().collect();
            let more = rows.len() > limit;
            rows.truncate(limit);
            Ok(AuditPage { rows, more })
        })
    }
}
