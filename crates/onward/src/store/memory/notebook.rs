//! What runs note on themselves.
//!
//! Owns: a run's log, and its tags once it changes them. Never writes for whoever does not hold the
//! run.

use super::*;
use crate::store::notebook::{apply, forgotten, is_there};

impl Notebook for MemoryStore {
    fn note(&self, lease: Lease, note: Note) -> Answer<'_, ()> {
        self.transact_quietly(|state, _| write(state, lease, note))
    }

    fn log(&self, run: RunId, after: u64, limit: usize) -> Answer<'_, LogPage> {
        self.read(|state| {
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let lines = state.row(run)?.log.iter().filter(|line| line.no > after);
            let mut lines: Vec<_> = lines.take(limit + 1).cloned().collect();
            let more = lines.len() > limit;
            lines.truncate(limit);
            Ok(LogPage { lines, more })
        })
    }
}

fn write(state: &mut State, lease: Lease, note: Note) -> Result<(), Error> {
    if let Err(lost) = settle::fenced(state, lease) {
        let row = state.runs.get(&lease.run).ok_or(Error::LeaseLost)?;
        return if is_there(&row.run, &row.log, &note) { Ok(()) } else { Err(lost) };
    }
    let row = state.row_mut(lease.run)?;
    apply(&mut row.run, &note);
    for line in note.lines {
        if row.log.iter().all(|there| there.no != line.no) {
            row.log.push(line);
        }
    }
    let forgotten = forgotten(&row.run);
    row.log.retain(|line| line.no > forgotten);
    Ok(())
}
