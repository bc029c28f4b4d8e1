//! Places in lines of runs that wait one behind the other.
//!
//! Owns: what a place is, and what becomes of a run that gets one, moves in its line or has its turn. Never
//! decides whether a run has to wait.

use super::state_at_start;
use crate::{Run, RunId, RunState, Timestamp, Waits};

/// The run whose end is waited for, by one that has not had its turn.
pub(crate) fn behind(waits_for: Option<&Waits>) -> Option<RunId> {
    match waits_for {
        Some(Waits::Behind { run, .. }) => Some(*run),
        _ => None,
    }
}

/// The run that this one waits for, or waited for when it ended before its turn.
pub(crate) fn ahead(run: &Run) -> Option<RunId> {
    behind(run.waits_for.as_ref()).or(run.notes.ended_behind)
}

/// A place in a line of runs that wait one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InLine {
    /// The run whose end is waited for.
    pub(crate) ahead: RunId,
    /// The run that waited for that one before, and now waits for whoever has this place.
    pub(crate) next: Option<RunId>,
}

/// Lets a run wait in this place of a line, and start no sooner than at this time.
pub(crate) fn wait_in_line(run: &mut Run, place: InLine, start_at: Timestamp) {
    run.state = RunState::Waiting;
    run.waits_for = Some(Waits::Behind { run: place.ahead, start_at });
    run.due_at = None;
    run.successor = place.next;
}

/// Lets a run that waits, or waited, behind another one wait behind this one instead; says whether it did.
pub(crate) fn move_behind(run: &mut Run, ahead: RunId) -> bool {
    match (&mut run.waits_for, &mut run.notes.ended_behind) {
        (Some(Waits::Behind { run, .. }), _) | (_, Some(run)) => {
            *run = ahead;
            true
        }
        _ => false,
    }
}

/// Lets a run begin whose turn has come; says whether it waited for that.
pub(crate) fn take_turn(run: &mut Run, now: Timestamp) -> bool {
    let Some(Waits::Behind { start_at, .. }) = run.waits_for else { return false };
    (run.state, run.waits_for) = state_at_start(start_at, now);
    run.due_at = Some(start_at.max(now));
    run.wakes += 1;
    true
}

/// How many runs may have come between a run that cannot be read and the one that it was behind.
pub(crate) const MOVES_MAX: usize = 100;

/// The run that is nearer to this one in its line than `ahead`, which was just ahead of it before; nothing where
/// it still is, or where there is none.
pub(crate) fn nearer(ahead: &Run, run: RunId) -> Option<RunId> {
    if ahead.state.is_final() {
        return ahead.continued_as.or(ahead.notes.ended_behind);
    }
    ahead.successor.filter(|next| *next != run)
}

/// The live run that stands for `latest`, an ended one, in its line: `ahead` is the one that it waited
/// for when it ended before its turn.
pub(crate) fn stands_for(latest: &Run, mut ahead: Run) -> Option<Run> {
    if ahead.state.is_final() {
        return None;
    }
    // The ended run's own place is free.
    ahead.successor = ahead.successor.filter(|next| *next != latest.id);
    Some(ahead)
}
