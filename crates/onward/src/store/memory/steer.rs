//! Steering runs: pausing, forking, and what a retry does about a child.
//!
//! Owns: what these do to the rows. Never decides whether they may; `store::steer` does.

use super::*;
use crate::limits::LATE_CHILDREN_MAX;
use crate::model::step_id;
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
    pub(super) fn retry(&mut self, run: RunId, now: Timestamp) -> Result<(), Error> {
        let row = self.row_mut(run)?;
        let undone = row.records.iter().any(rules::is_undo_began);
        if !rules::retrying(&row.run, undone)? {
            return Ok(());
        }
        let failed_step = row.failed_step.take();
        let voided = (row.records.iter_mut())
            .filter(|record| Some(&record.step) == failed_step.as_ref())
            .filter(|record| record.entry.kind() != RecordKind::Arrived)
            .filter(|record| record.voided_at.is_none());
        voided.for_each(|record| record.voided_at = Some(now));
        let (ahead, was_late) = (rules::ahead(&row.run), rules::ran_out_of_time(&row.run));
        rules::retry(&mut row.run, now);
        row.ticket = None;
        let mut retried = row.run.clone();
        if let Some(parent) = retried.parent.as_ref().and_then(|of| self.runs.get(&of.run)) {
            rules::limit_retried(&mut retried, &parent.run);
        }
        self.row_mut(run)?.run = retried;
        if let Some(place) = ahead.and_then(|ahead| self.join_line(ahead, run)) {
            rules::wait_in_line(&mut self.row_mut(run)?.run, place, now);
        }
        if let Some(step) = failed_step {
            self.ask_child_again(run, &step, now)?;
        }
        if was_late {
            self.ask_late_children_again(run, now)?;
        }
        Ok(())
    }

    /// Retries the children that ran out of time with this run, and have told it so since.
    pub(super) fn ask_late_children_again(
        &mut self,
        run: RunId,
        now: Timestamp,
    ) -> Result<(), Error> {
        let row = self.row(run)?;
        let is_told = |step: &str| {
            row.records.iter().any(|record| record.step == step && record.voided_at.is_none())
        };
        let failed = (row.signals.iter())
            .filter(|signal| step_id::is_child(&signal.step) && !is_told(&signal.recorded_as()))
            .filter_map(|signal| Some((signal, self.runs.get(&signal.key.parse().ok()?)?)))
            .filter(|(_, child)| child.run.state == RunState::Failed)
            .filter(|(_, child)| child.run.deadline_at.is_some())
            .take(LATE_CHILDREN_MAX);
        let late: Vec<_> = failed
            .filter(|(_, child)| rules::ran_out_of_time(&child.run))
            .map(|(signal, _)| signal.step.clone())
            .collect();
        late.iter().try_for_each(|step| self.ask_child_again(run, step, now))
    }

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
        let told = row.signals.remove(place);
        row.signal_bytes = row.signal_bytes.saturating_sub(told.bytes() as u64);
        let told = told.recorded_as();
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
