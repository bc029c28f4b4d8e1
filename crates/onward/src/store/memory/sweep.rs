//! Workers coming and going, and what becomes of the runs of those that are gone.
//!
//! Owns: the mark that takes a lease away, and taking back what its worker held. Never marks the
//! worker that sweeps.

use super::*;
use crate::limits::{CASCADE_BACK_MAX, CASCADE_BATCH_MAX, LATE_BATCH_MAX, SWEEP_BATCH_MAX};
use crate::store::rules::Late;

pub(super) fn join(state: &mut State, worker: NewWorker, now: Timestamp) -> Result<(), Error> {
    if let Some(row) = state.workers.get(&worker.id) {
        return if row.lost_at.is_some() { Err(Error::LeaseLost) } else { Ok(()) };
    }
    let lease_until = Timestamp::from_millis(now.as_millis() + worker.lease_ms);
    state.workers.insert(worker.id, WorkerRow { worker, lease_until, lost_at: None });
    Ok(())
}

pub(super) fn leave(state: &mut State, worker: WorkerId, now: Timestamp) {
    if let Some(row) = state.workers.get_mut(&worker) {
        row.lost_at.get_or_insert(now);
    }
    let held = state.runs.values_mut().filter(|row| row.run.worker == Some(worker));
    for row in held {
        row.trace(None);
        row.queue(now);
    }
}

pub(super) fn sweep(state: &mut State, sweep: &Sweep, now: Timestamp) -> Result<Swept, Error> {
    if state.is_lost(sweep.worker) {
        return Err(Error::LeaseLost);
    }
    let lost = mark_lost(state, sweep, now);
    let (taken, more_to_take) = take_back(state, sweep.worker, now);
    let (woken, more_to_wake) = claim::wake_due(state, now);
    let more_to_end = end_late(state, now);
    let more_to_mend = mend_stuck(state, sweep.worker, now);
    let more_to_cancel = cascade(state, now)?;
    forget_lost(state, now);
    let more = more_to_take || more_to_wake || more_to_end || more_to_mend || more_to_cancel;
    Ok(Swept { lost, taken, woken, more, next_at: None })
}

fn mark_lost(state: &mut State, sweep: &Sweep, now: Timestamp) -> Vec<WorkerId> {
    // Until it has renewed its own, a clock that was set back makes every lease look like one of a dead worker.
    let own = state.workers.get(&sweep.worker);
    if own.is_none_or(|own| rules::is_before_step(own.lease_until, own.worker.lease_ms, now)) {
        return Vec::new();
    }
    let expired = (state.workers.iter_mut())
        .filter(|(id, row)| **id != sweep.worker && row.lost_at.is_none())
        .filter(|(_, row)| rules::has_expired(row.lease_until, row.worker.lease_ms, now))
        .filter(|_| sweep.expired == ExpiredLeases::Take);
    expired
        .map(|(id, row)| {
            row.lost_at = Some(now);
            *id
        })
        .collect()
}

/// Deletes some of the workers that were lost long ago and hold no run: what is left of them is
/// for the next pass.
fn forget_lost(state: &mut State, now: Timestamp) {
    let before = rules::forget_lost_before(now);
    let holds = |id| state.runs.values().any(|row| row.run.worker == Some(id));
    let old: Vec<WorkerId> = (state.workers.iter())
        .filter(|(_, row)| row.lost_at.is_some_and(|lost_at| lost_at < before))
        .map(|(id, _)| *id)
        .filter(|id| !holds(*id))
        .take(SWEEP_BATCH_MAX)
        .collect();
    for worker in old {
        state.workers.remove(&worker);
    }
}

/// Queues the runs of lost or missing workers; says whether more are left.
fn take_back(state: &mut State, sweeper: WorkerId, now: Timestamp) -> (Vec<RunId>, bool) {
    let orphaned = |run: &Run| run.worker.is_some_and(|w| w != sweeper && state.is_lost(w));
    let mut taken: Vec<RunId> = (state.runs.values())
        .filter(|row| row.run.state == RunState::Running && orphaned(&row.run))
        .map(|row| row.run.id)
        .collect();
    let more = taken.len() > SWEEP_BATCH_MAX;
    taken.truncate(SWEEP_BATCH_MAX);
    for run in &taken {
        if let Some(row) = state.runs.get_mut(run) {
            row.lose(now);
        }
    }
    (taken, more)
}

/// Ends runs whose deadline has passed, and opens those that have something to undo; says whether more
/// may be left.
fn end_late(state: &mut State, now: Timestamp) -> bool {
    let is_late = |row: &Row| rules::late(&row.run, row.late_at, false, now) != Late::Leave;
    let mut late: Vec<_> = (state.runs.values())
        .filter(|row| is_late(row))
        .map(|row| (row.run.deadline_at, row.run.id))
        .collect();
    late.sort();
    late.truncate(LATE_BATCH_MAX);
    for (deadline_at, run) in &late {
        let Some(row) = state.runs.get_mut(run) else { continue };
        let undoes = row.records.iter().any(rules::undoes);
        match rules::late(&row.run, row.late_at, undoes, now) {
            Late::Leave => {}
            Late::Open => {
                rules::open_late(&mut row.run, now);
                row.late_at = *deadline_at;
            }
            Late::End => {
                row.run.failure = Some(rules::deadline_exceeded());
                state.end(*run, RunState::Failed, now);
            }
        }
    }
    late.len() == LATE_BATCH_MAX
}

/// Queues stuck runs that the sweeper serves, if its build is not one they got stuck under; says
/// whether more are left.
fn mend_stuck(state: &mut State, sweeper: WorkerId, now: Timestamp) -> bool {
    let Some(row) = state.workers.get(&sweeper) else { return false };
    let worker = row.worker.clone();
    let mut mendable = state.runs.values_mut().filter(|row| {
        matches!(row.run.waits_for, Some(Waits::Stuck { .. }))
            && !row.run.stuck_builds.contains(&worker.build)
            && worker.workflows.contains(&row.run.workflow)
            && worker.queues.contains(&row.run.queue)
    });
    for row in mendable.by_ref().take(SWEEP_BATCH_MAX) {
        row.run.crashes = 0;
        row.queue(now);
    }
    mendable.next().is_some()
}

/// Asks the children of cancelled runs to end, and those of the runs that went on as them; says whether
/// more may be left: a child that ends at once may have children itself.
pub(super) fn cascade(state: &mut State, now: Timestamp) -> Result<bool, Error> {
    for _ in 0..CASCADE_BACK_MAX {
        let cancelled: Vec<RunId> =
            state.runs.values().filter(|row| row.cascades).map(|row| row.run.id).collect();
        if cancel_children(state, &cancelled, now)? {
            return Ok(true);
        }
        if !state.go_back(&cancelled) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Asks some children of these runs to end; says whether there were any.
fn cancel_children(state: &mut State, cancelled: &[RunId], now: Timestamp) -> Result<bool, Error> {
    let mut children: Vec<RunId> = state.children_to_ask(cancelled).collect();
    children.truncate(CASCADE_BATCH_MAX);
    for child in &children {
        state.cancel(*child, now)?;
    }
    Ok(!children.is_empty())
}

impl State {
    /// Goes from cancelled runs whose children are all asked to end back to the runs that went on as
    /// them; says whether there are any.
    fn go_back(&mut self, cancelled: &[RunId]) -> bool {
        let mut before = Vec::new();
        for run in cancelled {
            if let Some(row) = self.runs.get_mut(run) {
                row.cascades = false;
                before.extend(row.run.continued_from);
            }
        }
        before.retain(|run| self.runs.get_mut(run).map(|row| row.cascades = true).is_some());
        !before.is_empty()
    }
}

impl State {
    /// The children of these runs that are not asked to end.
    pub(super) fn children_to_ask(&self, parents: &[RunId]) -> impl Iterator<Item = RunId> {
        let is_asked = |run: &Run| run.state.is_final() || run.cancel_at.is_some();
        let runs = self.runs.values().map(|row| &row.run).filter(move |run| !is_asked(run));
        let children = runs.filter(|run| {
            let parent = run.parent.as_ref().filter(|parent| !parent.detached);
            parent.is_some_and(|parent| parents.contains(&parent.run))
        });
        children.map(|run| run.id)
    }
}

impl Row {
    /// Takes the run from a holder that is gone.
    fn lose(&mut self, now: Timestamp) {
        let attempt = self.run.attempt;
        let progressed = self.records.iter().any(|record| record.attempt == attempt);
        self.trace(None);
        rules::lose(&mut self.run, progressed, now);
        self.ticket = None;
    }
}
