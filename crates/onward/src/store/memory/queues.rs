//! Queues with limits, in memory.
//!
//! Owns: what is set up, what was granted, and what a claim sees of a queue. Never decides how much a
//! claim may take; `store::limited` does.

use std::convert::Infallible;
use std::ops::Bound;

use super::claim::{Place, fits, place};
use super::*;
use crate::limits::QUEUES_MAX;
use crate::store::limited::{
    Choice, Granted, Limited, Site, Within, choose as choose_one, in_places, rate_end,
};
use crate::store::queues::{self, Change, earlier};
use crate::{Queue, QueueCounts, QueueUse};

impl Queues for MemoryStore {
    fn put_queue(&self, put: PutQueue) -> Answer<'_, Queue> {
        self.transact(|state, now| {
            let change = queues::put(state.queue(&put.name), &put, now);
            state.change_queue(&put.name, &change)
        })
    }

    fn pause_queue(&self, name: String) -> Answer<'_, Queue> {
        self.transact(|state, now| {
            let change = queues::pause(state.queue(&name), &name, now);
            state.change_queue(&name, &change)
        })
    }

    fn resume_queue(&self, name: String) -> Answer<'_, Queue> {
        self.transact(|state, now| {
            let change = queues::resume(state.queue(&name), &name, now);
            state.change_queue(&name, &change)
        })
    }

    fn clear_queue(&self, name: String) -> Answer<'_, bool> {
        self.transact(|state, _| {
            let there = state.queues.contains_key(&name);
            state.change_queue(&name, &Change::Remove)?;
            Ok(there)
        })
    }

    fn get_queue(&self, name: String) -> Answer<'_, Option<Queue>> {
        self.read(|state| Ok(state.queue(&name).cloned()))
    }

    fn list_queues(&self, after: Option<String>, limit: usize) -> Answer<'_, QueuePage> {
        self.read(|state| {
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let mut counts = state.queue_counts();
            counts.retain(|counts| after.as_ref().is_none_or(|after| counts.queue.name > *after));
            let more = counts.len() > limit;
            counts.truncate(limit);
            Ok(QueuePage { queues: counts, more })
        })
    }

    fn queue_use(&self, name: String, lane: Option<String>) -> Answer<'_, Option<QueueUse>> {
        let now = self.clock.now();
        self.read(|state| Ok(state.queue_use(&name, lane.as_deref(), now)))
    }

    fn export_queue(&self, name: String) -> Answer<'_, Option<WholeQueue>> {
        let now = self.clock.now();
        self.read(|state| {
            let Some(Limited { queue, last_lane }) = state.queues.get(&name).cloned() else {
                return Ok(None);
            };
            let all = (
                Bound::Included((name.clone(), Timestamp::from_millis(i64::MIN))),
                Bound::Unbounded,
            );
            let mine = state.grants.range(all).take_while(|((queue, _), _)| *queue == name);
            let grants = mine.map(|((_, at), count)| Grant { at: *at, count: *count }).collect();
            Ok(Some(WholeQueue { queue, last_lane, grants }.at(now)))
        })
    }

    fn import_queue(&self, import: ImportQueue) -> Answer<'_, QueueImported> {
        self.transact(|state, _| {
            let ImportQueue { whole: WholeQueue { queue, last_lane, grants }, dry_run } = import;
            if let Some(there) = state.queue(&queue.name) {
                let same = *there == queue;
                return Ok(if same { QueueImported::There } else { QueueImported::Differs });
            }
            if !dry_run {
                let name = queue.name.clone();
                state.change_queue(&name, &Change::Save(queue))?;
                state.queues.entry(name.clone()).or_default().last_lane = last_lane;
                let grants = grants.iter().map(|grant| ((name.clone(), grant.at), grant.count));
                state.grants.extend(grants);
            }
            Ok(QueueImported::New)
        })
    }
}

impl State {
    fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.get(name).map(|limited| &limited.queue)
    }

    fn change_queue(&mut self, name: &str, change: &Change) -> Result<Queue, Error> {
        let old = self.queue(name).cloned();
        match change {
            Change::None => {}
            Change::Save(_) if old.is_none() && self.queues.len() >= QUEUES_MAX => {
                return Err(Error::Conflict(Conflict::QueuesFull));
            }
            Change::Save(queue) => {
                self.queues.entry(name.to_owned()).or_default().queue = queue.clone();
            }
            Change::Remove => {
                self.queues.remove(name);
                self.grants.retain(|(queue, _), _| queue != name);
            }
        }
        Ok(change.after(old, name))
    }

    fn running_in(&self, queue: &str) -> impl Iterator<Item = &Run> {
        let runs = self.runs.values().map(|row| &row.run);
        runs.filter(move |run| run.state == RunState::Running && run.queue == queue)
    }

    fn queue_counts(&self) -> Vec<QueueCounts> {
        let mut all: BTreeMap<&str, QueueCounts> = BTreeMap::new();
        for run in self.runs.values().map(|row| &row.run) {
            if matches!(run.state, RunState::Queued | RunState::Running) {
                let counts = all.entry(&run.queue).or_default();
                counts.queued += u64::from(run.state == RunState::Queued);
                counts.running += u64::from(run.state == RunState::Running);
                let waits = run.state == RunState::Queued && run.paused_at.is_none();
                let due = run.due_at.filter(|_| waits);
                counts.oldest_due_at = earlier(counts.oldest_due_at, due);
            }
        }
        for name in self.queues.keys() {
            all.entry(name).or_default();
        }
        let named = all.into_iter().map(|(name, counts)| {
            let queue = self.queue(name).cloned().unwrap_or_else(|| Queue::named(name));
            QueueCounts { queue, ..counts }
        });
        named.collect()
    }

    fn queue_use(&self, name: &str, lane: Option<&str>, now: Timestamp) -> Option<QueueUse> {
        let queue = self.queue(name)?.clone();
        let mut held: BTreeMap<WorkerId, u64> = BTreeMap::new();
        for worker in self.running_in(name).filter_map(|run| run.worker) {
            *held.entry(worker).or_default() += 1;
        }
        let running = self.running_in(name).count() as u64;
        let lane_running = self.running_in(name).filter(|run| run.lane.as_deref() == lane);
        let lane_running = lane.map_or(0, |_| lane_running.count() as u64);
        let rate_until = queue.limits.rate.and_then(|rate| {
            let granted = self.granted(name, Within::period(now, rate.period_ms));
            let full = granted.count >= u64::from(rate.count);
            granted.first_at.filter(|_| full).map(|first| rate_end(first, rate.period_ms))
        });
        Some(QueueUse {
            queue,
            running,
            lane_running,
            held: held.into_iter().collect(),
            rate_until,
        })
    }

    fn granted(&self, queue: &str, within: Within) -> Granted {
        let first = Bound::Excluded((queue.to_owned(), within.after));
        let last = Bound::Included((queue.to_owned(), within.until));
        let mut grants = self.grants.range((first, last)).peekable();
        let first_at = grants.peek().map(|((_, at), _)| *at);
        Granted { count: grants.map(|(_, count)| count).sum(), first_at }
    }
}

/// What a claim sees of one queue.
struct Seen<'a> {
    state: &'a State,
    claim: &'a Claim,
    queue: &'a str,
}

impl Seen<'_> {
    fn fitting(&self, mode: ClaimMode) -> impl Iterator<Item = &Run> {
        let runs = self.state.runs.values().map(|row| &row.run);
        runs.filter(move |run| run.queue == self.queue && fits(self.claim, mode, run))
    }

    fn queued(&self, mode: ClaimMode, keep: impl Fn(&Run) -> bool) -> Vec<Run> {
        let mut queued: Vec<_> = self.fitting(mode).filter(|run| keep(run)).cloned().collect();
        queued.sort_by_key(place);
        queued
    }
}

fn is_kept(run: &Run) -> bool {
    !run.stuck_builds.is_empty() && run.cancel_at.is_none()
}

impl Site for Seen<'_> {
    type Run = Run;
    type Fault = Infallible;

    fn lane_of(run: &Run) -> Option<&str> {
        run.lane.as_deref()
    }

    fn running(&mut self) -> Result<(u64, u64), Infallible> {
        let running = self.state.running_in(self.queue).count() as u64;
        let held = self.state.running_in(self.queue);
        let held = held.filter(|run| run.worker == Some(self.claim.worker)).count() as u64;
        Ok((running, held))
    }

    fn lane_running(&mut self, lane: &str) -> Result<u64, Infallible> {
        let running = self.state.running_in(self.queue);
        Ok(running.filter(|run| run.lane.as_deref() == Some(lane)).count() as u64)
    }

    fn granted(&mut self, within: Within) -> Result<Granted, Infallible> {
        Ok(self.state.granted(self.queue, within))
    }

    fn first(&mut self, mode: ClaimMode, limit: usize) -> Result<Vec<Run>, Infallible> {
        let mut queued = self.queued(mode, |_| true);
        queued.truncate(limit);
        Ok(queued)
    }

    fn first_kept(&mut self, limit: usize) -> Result<Vec<Run>, Infallible> {
        let mut kept = self.queued(ClaimMode::Ordinary, is_kept);
        kept.truncate(limit);
        Ok(kept)
    }

    fn lane_after(&mut self, lane: Option<&str>) -> Result<Option<String>, Infallible> {
        let queued = self.fitting(ClaimMode::Ordinary).filter(|run| !is_kept(run));
        let lanes = queued.map(|run| run.lane.as_deref().unwrap_or_default());
        let after = lanes.filter(|next| lane.is_none_or(|lane| *next > lane));
        Ok(after.min().map(str::to_owned))
    }

    fn lane_first(&mut self, lane: &str, limit: usize) -> Result<Vec<Run>, Infallible> {
        let in_lane = |run: &Run| run.lane.as_deref().unwrap_or_default() == lane && !is_kept(run);
        let mut queued = self.queued(ClaimMode::Ordinary, in_lane);
        if !lane.is_empty() {
            queued.sort_by_key(|run| (run.started_at.is_none(), place(run)));
        }
        queued.truncate(limit);
        Ok(queued)
    }
}

fn chosen(
    state: &State,
    claim: &Claim,
    limited: &Limited,
    (mode, limit): (ClaimMode, usize),
    now: Timestamp,
) -> Choice<Run> {
    let mut seen = Seen { state, claim, queue: &limited.queue.name };
    match choose_one(&mut seen, limited, mode, limit, now) {
        Ok(choice) => choice,
        Err(never) => match never {},
    }
}

/// The limited queues that a claim serves.
fn served(state: &State, claim: &Claim) -> Vec<Limited> {
    let limited = state.queues.values();
    limited.filter(|limited| claim.queues.contains(&limited.queue.name)).cloned().collect()
}

/// The runs of limited queues that a claim may take, queue by queue, in turn, each with its place among all.
pub(super) fn choose(
    state: &mut State,
    claim: &Claim,
    limit: usize,
    now: Timestamp,
) -> Vec<(Place, RunId)> {
    let mut runs = Vec::new();
    for limited in served(state, claim) {
        let choice = chosen(state, claim, &limited, (claim.mode, limit), now);
        if let (Some(cut_at), Some(row)) =
            (choice.cut_at, state.queues.get_mut(&limited.queue.name))
        {
            row.last_lane = Some(cut_at);
        }
        runs.extend(in_places(choice.runs, place).into_iter().map(|(place, run)| (place, run.id)));
    }
    runs
}

/// Notes what was taken of limited queues: whose turn was last, and what counts against a rate.
pub(super) fn note(
    state: &mut State,
    taken: &[Claimed],
    chosen: &[(Place, RunId)],
    now: Timestamp,
) {
    let in_turn =
        chosen.iter().filter_map(|(_, id)| taken.iter().find(|claimed| claimed.run.id == *id));
    for claimed in in_turn {
        let run = &claimed.run;
        let Some(limited) = state.queues.get_mut(&run.queue) else { continue };
        if limited.queue.limits.per_lane.is_some() {
            limited.last_lane = Some(run.lane.clone().unwrap_or_default());
        }
        if let Some(rate) = limited.queue.limits.rate {
            let within = Within::period(now, rate.period_ms);
            state.grants.retain(|(queue, at), _| *queue != run.queue || within.contains(*at));
            *state.grants.entry((run.queue.clone(), now)).or_default() += 1;
        }
    }
}

/// What is left of limited queues after a claim.
#[derive(Default)]
pub(super) struct Left {
    pub(super) more: bool,
    pub(super) suspect: bool,
    pub(super) look_at: Option<Timestamp>,
}

/// Whether a further claim could take something of a limited queue, and when to look again.
pub(super) fn left(state: &State, claim: &Claim, now: Timestamp) -> Left {
    let mut left = Left::default();
    for limited in served(state, claim) {
        let ordinary = chosen(state, claim, &limited, (ClaimMode::Ordinary, 1), now);
        let suspect = chosen(state, claim, &limited, (ClaimMode::Suspect, 1), now);
        left.more |= !ordinary.runs.is_empty();
        left.suspect |= !suspect.runs.is_empty();
        left.look_at = left.look_at.into_iter().chain(ordinary.look_at).min();
    }
    left
}
