//! Claiming: waking what is due, then giving runs to a worker.
//!
//! Owns: which runs a claim takes, in what order, and a repeated claim's answer. Never takes a run
//! for a lost worker.

use super::*;
use crate::limits::{CLAIM_BATCH_MAX, CLAIM_BYTES_MAX, SWEEP_BATCH_MAX};

pub(super) fn claim(state: &mut State, claim: &Claim, now: Timestamp) -> Result<Claims, Error> {
    if state.is_lost(claim.worker) {
        return Err(Error::LeaseLost);
    }
    wake_due(state, now);
    let mut runs = taken_before(state, claim);
    if runs.is_empty() {
        runs = take(state, claim, now);
    }
    let left = queues::left(state, claim, now);
    let live = state.runs.values().map(|row| &row.run);
    let waiting = live.clone().filter(|run| run.state == RunState::Waiting);
    let free = live.filter(|run| !state.queues.contains_key(&run.queue));
    Ok(Claims {
        runs,
        marks: marks(state, claim.worker),
        next_due: waiting.filter_map(|run| run.due_at).chain(left.look_at).min(),
        more: left.more || free.clone().any(|run| fits(claim, ClaimMode::Ordinary, run)),
        suspect: left.suspect || free.clone().any(|run| fits(claim, ClaimMode::Suspect, run)),
    })
}

/// Queues the runs whose time has come; returns how many, and whether more are due.
pub(super) fn wake_due(state: &mut State, now: Timestamp) -> (usize, bool) {
    let mut due: Vec<_> = (state.runs.values())
        .filter(|row| row.run.state == RunState::Waiting)
        .filter_map(|row| Some((row.run.due_at?, row.run.id)))
        .filter(|(due_at, _)| *due_at <= now)
        .collect();
    due.sort();
    let more = due.len() > SWEEP_BATCH_MAX;
    due.truncate(SWEEP_BATCH_MAX);
    for (due_at, run) in &due {
        if let Some(row) = state.runs.get_mut(run) {
            row.queue(*due_at);
        }
    }
    (due.len(), more)
}

/// The runs that this claim took when it was first made.
fn taken_before(state: &State, claim: &Claim) -> Vec<Claimed> {
    let held = state
        .runs
        .values()
        .filter(|row| row.run.worker == Some(claim.worker) && row.ticket == Some(claim.ticket));
    held.map(Row::claimed).collect()
}

fn take(state: &mut State, claim: &Claim, now: Timestamp) -> Vec<Claimed> {
    let limit = match claim.mode {
        ClaimMode::Ordinary => claim.limit.min(CLAIM_BATCH_MAX),
        ClaimMode::Suspect => claim.limit.min(1),
    };
    let limited = queues::choose(state, claim, limit, now);
    let mut queued: Vec<_> = (state.runs.values())
        .map(|row| &row.run)
        .filter(|run| !state.queues.contains_key(&run.queue))
        .filter(|run| fits(claim, claim.mode, run))
        .map(|run| (place(run), run.id))
        .chain(limited.iter().copied())
        .collect();
    queued.sort();
    let mut runs = Vec::new();
    let mut bytes = 0;
    for (_, run) in queued.into_iter().take(limit) {
        let Some(row) = state.runs.get_mut(&run) else { continue };
        rules::claim(&mut row.run, claim.worker, &claim.build, now);
        row.ticket = Some(claim.ticket);
        let claimed = row.claimed();
        bytes += claimed.bytes();
        runs.push(claimed);
        if bytes > CLAIM_BYTES_MAX {
            break;
        }
    }
    queues::note(state, &runs, &limited, now);
    runs
}

/// A place in the order of claims.
pub(super) type Place = (i64, Option<Timestamp>, RunId);

/// A run's place.
pub(super) fn place(run: &Run) -> Place {
    (-i64::from(run.priority), run.due_at, run.id)
}

/// Whether this claim, in this mode, may take this run.
pub(super) fn fits(claim: &Claim, mode: ClaimMode, run: &Run) -> bool {
    let kept_off = run.cancel_at.is_none() && run.stuck_builds.contains(&claim.build);
    run.state == RunState::Queued
        && run.paused_at.is_none()
        && claim.queues.contains(&run.queue)
        && claim.workflows.contains(&run.workflow)
        && rules::is_suspect(run.crashes) == (mode == ClaimMode::Suspect)
        && !kept_off
}

fn marks(state: &State, worker: WorkerId) -> Vec<Mark> {
    let marked = state.runs.values().map(|row| &row.run).filter(|run| {
        let marked = run.cancel_at.is_some() || run.paused_at.is_some();
        run.state == RunState::Running && run.worker == Some(worker) && marked
    });
    let mark = |run: &Run| Mark {
        lease: Lease { run: run.id, worker, attempt: run.attempt },
        asks: if run.cancel_at.is_some() { Asks::End } else { Asks::Pause },
    };
    marked.map(mark).collect()
}

impl Row {
    fn claimed(&self) -> Claimed {
        let worker = self.run.worker.unwrap_or_default();
        let (signals, is_cut) = signal::page(self.untaken().into_iter());
        let last = signals.last().map(|signal| signal.no).filter(|_| is_cut);
        let builds = self.attempts.iter().map(|(number, trace)| (*number, trace.build.clone()));
        Claimed {
            lease: Lease { run: self.run.id, worker, attempt: self.run.attempt },
            run: self.run.clone(),
            history: self.records.iter().filter(|r| r.voided_at.is_none()).cloned().collect(),
            last_seq: self.records.last().map_or(0, |record| record.seq),
            voided_seq: self.records.iter().find(|r| r.voided_at.is_some()).map(|r| r.seq),
            builds: builds.collect(),
            signals,
            signals_to: last.unwrap_or(self.run.signals),
            unreadable: None,
        }
    }
}
