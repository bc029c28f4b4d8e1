//! Whole runs, out and in.
//!
//! Owns: which parts of the state belong to a run. Never changes a run that is there.

use std::ops::Bound;

use super::*;
use crate::limits::{COPY_BATCH_MAX, COPY_BYTES_MAX, COPY_ROWS_MAX};
use crate::store::gather;
use crate::store::portable::{Site, sort_out};

pub(super) fn export(state: &State, after: Option<RunId>, limit: usize) -> Vec<WholeRun> {
    let first = after.map_or(Bound::Unbounded, Bound::Excluded);
    let rows = state.runs.range((first, Bound::Unbounded)).map(|(_, row)| row);
    let mut runs = Vec::new();
    let (mut bytes, mut parts) = (0, 0);
    for row in rows.take(limit.clamp(1, COPY_BATCH_MAX)) {
        let whole = state.whole(row);
        bytes += whole.bytes();
        parts += whole.rows();
        runs.push(whole);
        if bytes >= COPY_BYTES_MAX || parts >= COPY_ROWS_MAX {
            break;
        }
    }
    runs
}

pub(super) fn import(
    state: &mut State,
    import: &Import,
    now: Timestamp,
) -> Result<Imported, Error> {
    let (new, there) = sort_out(import, now, |whole| Ok::<_, Error>(state.site(whole, now)))?;
    let imported = Imported { new: new.len() as u64, there };
    if !import.dry_run {
        new.into_iter().for_each(|whole| state.add_whole(whole, now));
    }
    Ok(imported)
}

impl State {
    pub(super) fn whole(&self, row: &Row) -> WholeRun {
        let run = &row.run;
        let held = run.key.as_ref().and_then(|key| {
            self.keys.get(&(run.workflow.clone(), key.clone())).filter(|held| held.run == run.id)
        });
        WholeRun {
            run: run.clone(),
            records: row.records.clone(),
            attempts: row.attempts.clone(),
            failed_step: row.failed_step.clone(),
            hold: held
                .map(|held| KeyHold { fingerprint: held.fingerprint, expires_at: held.expires_at }),
            suppressed: row.duplicates.iter().cloned().collect(),
            signals: row.signals.clone(),
            log: row.log.clone(),
            cascades: row.cascades,
        }
    }

    fn site(&self, whole: &WholeRun, now: Timestamp) -> Site {
        let key = whole.held_key().map(|(workflow, key)| (workflow.to_owned(), key.to_owned()));
        let holder = key.and_then(|(workflow, key)| self.live_key(workflow, key, now));
        Site {
            there: self.runs.get(&whole.run.id).map(|row| self.whole(row)),
            holder: holder.map(|held| held.run),
        }
    }

    pub(super) fn add_whole(&mut self, whole: WholeRun, now: Timestamp) {
        let key = whole.held_key().map(|(workflow, key)| (workflow.to_owned(), key.to_owned()));
        let WholeRun { run, records, attempts, failed_step, hold, .. } = whole;
        let WholeRun { suppressed, signals, log, cascades, .. } = whole;
        if let (Some(key), Some(KeyHold { fingerprint, expires_at })) = (key, hold) {
            self.keys.insert(key, KeyRow { run: run.id, fingerprint, expires_at });
        }
        // What is too old to be asked for would only stay there.
        let young = suppressed.iter().filter(|(_, duplicate)| duplicate.at > gather::over(now));
        for (start, duplicate) in young {
            self.gathered.entry(*start).or_insert((run.id, run.created_at, duplicate.at));
        }
        let row = Row { records, attempts, failed_step, ..Row::of(run) };
        let signal_bytes = signals.iter().map(|signal| signal.bytes() as u64).sum();
        let row =
            Row { duplicates: suppressed.into(), signals, signal_bytes, log, cascades, ..row };
        self.runs.insert(row.run.id, row);
    }
}
