//! Runs that wait one behind the other.
//!
//! Owns: who waits for whom when a run joins a line, ends, or goes on as another. Never decides whether
//! a run has to wait; `rules` and `schedules` do.

use super::*;
use crate::store::rules::InLine;

impl State {
    /// Gives a run the place behind this one, unless that one has ended.
    pub(super) fn join_line(&mut self, ahead: RunId, run: RunId) -> Option<InLine> {
        let row = self.runs.get_mut(&ahead).filter(|row| !row.run.state.is_final())?;
        let next = row.run.successor.replace(run);
        let waits = |next: &RunId| {
            let row = self.runs.get(next);
            row.is_some_and(|row| rules::behind(row.run.waits_for.as_ref()) == Some(ahead))
        };
        let next = next.filter(waits);
        if let Some(next) = next {
            self.move_behind(next, run);
        }
        Some(InLine { ahead, next })
    }

    /// Lets a run that waits behind one wait behind another.
    pub(super) fn move_behind(&mut self, run: RunId, ahead: RunId) {
        if let Some(row) = self.runs.get_mut(&run) {
            rules::move_behind(&mut row.run, ahead);
        }
    }

    /// Lets the run behind one that ended begin, or take the place of one that ended before its turn.
    pub(super) fn leave_line(&mut self, run: RunId, ahead: Option<RunId>, now: Timestamp) {
        let Some(next) = self.runs.get(&run).and_then(|row| row.run.successor) else { return };
        match ahead {
            Some(ahead) => {
                if let Some(row) = self.runs.get_mut(&ahead) {
                    row.run.successor = Some(next);
                }
                self.move_behind(next, ahead);
            }
            None => {
                if let Some(row) = self.runs.get_mut(&next) {
                    rules::take_turn(&mut row.run, now);
                }
            }
        }
    }

    /// The run by which to judge whether the line of `latest` is free.
    pub(super) fn last_in_line(&self, latest: RunId) -> Option<Run> {
        let latest = &self.runs.get(&latest)?.run;
        let ahead = latest.notes.ended_behind.and_then(|ahead| self.runs.get(&ahead));
        let stands_for = ahead.and_then(|ahead| rules::stands_for(latest, ahead.run.clone()));
        Some(stands_for.unwrap_or_else(|| latest.clone()))
    }
}
