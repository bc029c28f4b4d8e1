//! Steering runs: pausing, forking, and what a retry does about a child.
//!
//! Owns: what these do to the rows. Never decides whether they may; `store::steer` does.

use super::*;
use crate::store::steer::{self, ChildAgain};

impl Steer for MemoryStore {
    fn pause(&self, pause: Pause) -> Answer<'_, Run> {
        self.transact(|state, now| {
            let run = &mut state.row_mut(pause.run)?.run;
            if steer::pausing(run)? {
                steer::pause(run, &pause.caller, now);
            }
            Ok(run.clone())
        })
    }

    fn resume(&self, run: RunId) -> Answer<'_, Run> {
        self.transact(|state, _| {
            let run = &mut state.row_mut(run)?.run;
            if steer::resuming(run)? {
                steer::resume(run);
            }
            Ok(run.clone())
        })
    }

    fn retry_seen(&self, seen: Seen) -> Answer<'_, bool> {
        self.transact(|state, now| {
            if state.row(seen.run)?.run.wakes != seen.wakes {
                return Ok(false);
            }
            state.retry(seen.run, now).map(|()| true)
        })
    }

    fn fork(&self, fork: Fork) -> Answer<'_, Run> {
        self.transact(|state, now| {
            if let Some(there) = state.runs.get(&fork.id) {
                return Ok(there.run.clone());
            }
            let source = state.whole(state.row(fork.run)?);
            let mut forked = steer::forked(source, &fork, now)?;
            if let Some(key) = &fork.key {
                let workflow = forked.run.workflow.clone();
                if let Some(held) = state.live_key(workflow, key.key.clone(), now) {
                    return Err(Error::Conflict(Conflict::KeyTaken { run: held.run }));
                }
                forked.hold = Some(KeyHold::of(key, now));
            }
            state.add_whole(forked, now);
            Ok(state.row(fork.id)?.run.clone())
        })
    }

    fn cascade(&self) -> Answer<'_, bool> {
        self.transact(sweep::cascade)
    }
}

impl State {
    /// Takes back what a child told of its end, and has it told anew, if the failure of this step
    /// is a child's. A fork starts a child of its own, where it took that end along.
    pub(super) fn ask_child_again(
        &mut self,
        run: RunId,
        step: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        let row = self.row_mut(run)?;
        let Some(place) = row.signals.iter().position(|signal| signal.step == step) else {
            let records =
                row.records.iter_mut().filter(|record| steer::is_child_record(record, step));
            records.for_each(|record| record.voided_at = Some(now));
            return Ok(());
        };
        let child = row.signals[place].key.parse::<RunId>().ok();
        let Some(child) = child.and_then(|child| self.runs.get(&child)) else { return Ok(()) };
        let undone = child.records.iter().any(rules::is_undo_began);
        let (id, again) = (child.run.id, steer::child_again(&child.run, undone));
        if again == ChildAgain::Leave {
            return Ok(());
        }
        let row = self.row_mut(run)?;
        let told = row.signals.remove(place).recorded_as();
        let records = row.records.iter_mut().filter(|record| record.step == told);
        records.for_each(|record| record.voided_at = Some(now));
        match again {
            ChildAgain::Retry => self.retry(id, now)?,
            ChildAgain::Tell => signal::tell_parent(self, id, now),
            ChildAgain::Await | ChildAgain::Leave => {}
        }
        Ok(())
    }
}
