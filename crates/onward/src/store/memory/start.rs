//! Starting runs, and what a key does to a start.
//!
//! Owns: new runs, their keys, and the audit of duplicates. Never decides what a key that is in
//! use means; `rules` does.

use super::*;
use crate::limits::DUPLICATES_KEPT_MAX;
use crate::store::rules::KeyMet;

pub(super) fn start(state: &mut State, new: NewRun, now: Timestamp) -> Result<Started, Error> {
    if let Some(row) = state.runs.get(&new.id) {
        return Ok(Started { run: new.id, how: how_again(row, &new), at: row.run.created_at });
    }
    let holder = new.key.as_ref().and_then(|key| {
        state.live_key(new.workflow.clone(), key.key.clone(), now).map(|row| row.run)
    });
    match (holder, &new.key) {
        (Some(holder), Some(key)) => {
            let key = key.clone();
            meet_key(state, new, &key, holder, now)
        }
        _ => Ok(insert(state, new, None, now)),
    }
}

/// What a repeated start is told: the same as the first time, as far as it still holds.
fn how_again(row: &Row, new: &NewRun) -> StartedHow {
    let held = new.claimant.as_ref().is_some_and(|claimant| {
        row.run.worker == Some(claimant.worker) && row.run.attempt == 1 && row.ticket.is_none()
    });
    if held && row.records.is_empty() { StartedHow::Claimed } else { StartedHow::New }
}

fn meet_key(
    state: &mut State,
    new: NewRun,
    key: &NewKey,
    holder: RunId,
    now: Timestamp,
) -> Result<Started, Error> {
    let row = state.row(holder)?;
    let created_at = row.run.created_at;
    let same_input = state
        .live_key(new.workflow.clone(), key.key.clone(), now)
        .is_some_and(|row| row.fingerprint == key.fingerprint);
    let met = rules::key_met(key.on_conflict, same_input, &row.run);
    match met {
        KeyMet::Replace => return replace(state, new, holder, now),
        KeyMet::Retry => {
            state.retry(holder, now)?;
            return Ok(Started { run: holder, how: StartedHow::Retried, at: created_at });
        }
        KeyMet::Existing | KeyMet::OtherInput | KeyMet::Taken => {}
    }
    let duplicate = Duplicate { at: now, caller: new.caller, same_input };
    state.row_mut(holder)?.add_duplicate(new.id, duplicate);
    match met {
        KeyMet::OtherInput => Err(Error::Conflict(Conflict::KeyInput { run: holder })),
        KeyMet::Taken => Err(Error::Conflict(Conflict::KeyTaken { run: holder })),
        _ => Ok(Started { run: holder, how: StartedHow::Existing, at: created_at }),
    }
}

/// Ends the run that has the key and starts the new one behind it: behind the run that one was
/// itself waiting for, if it ends at once.
fn replace(state: &mut State, new: NewRun, old: RunId, now: Timestamp) -> Result<Started, Error> {
    let ahead = match &state.row(old)?.run.waits_for {
        Some(Waits::Behind { run, .. }) => *run,
        _ => old,
    };
    match state.cancel(old, now) {
        Ok(()) | Err(Error::Conflict(Conflict::Finished { .. })) => {}
        Err(error) => return Err(error),
    }
    let mut behind = None;
    if let Some(row) = state.runs.get_mut(&ahead)
        && !row.run.state.is_final()
    {
        row.run.successor = Some(new.id);
        behind = Some(ahead);
    }
    // The answer says `Replaced`, not `Claimed`: a claimant would hold the run and not know it.
    let new = NewRun { claimant: None, ..new };
    let started = insert(state, new, behind, now);
    Ok(Started { how: StartedHow::Replaced(old), ..started })
}

fn insert(state: &mut State, new: NewRun, behind: Option<RunId>, now: Timestamp) -> Started {
    let claimant = new.claimant.clone().filter(|claimant| !state.is_lost(claimant.worker));
    if let Some(key) = &new.key {
        let expires_at = key.ttl_ms.map(|ttl| Timestamp::from_millis(now.as_millis() + ttl));
        let row = KeyRow { run: new.id, fingerprint: key.fingerprint, expires_at };
        state.keys.insert((new.workflow.clone(), key.key.clone()), row);
    }
    let id = new.id;
    let mut row = Row::new(new, behind, now);
    let mut how = StartedHow::New;
    if let Some(claimant) = claimant
        && row.run.state == RunState::Queued
    {
        row.claim(claimant.worker, claimant.build, None, now);
        how = StartedHow::Claimed;
    }
    state.runs.insert(id, row);
    Started { run: id, how, at: now }
}

impl Row {
    fn new(new: NewRun, behind: Option<RunId>, now: Timestamp) -> Self {
        let start = rules::start_time(new.start_at, now);
        let (state, waits_for, due_at) = match behind {
            Some(run) => (RunState::Waiting, Some(Waits::Behind { run, start_at: start }), None),
            None => {
                let (state, waits_for) = rules::state_at_start(start, now);
                (state, waits_for, Some(start))
            }
        };
        let timeout = |ms| Timestamp::from_millis(start.as_millis().saturating_add(ms));
        let run = Run {
            state,
            waits_for,
            due_at,
            deadline_at: new.timeout_ms.map(timeout),
            key: new.key.map(|key| key.key),
            tags: new.tags,
            queue: new.queue,
            priority: new.priority,
            ..Run::fresh(new.id, new.workflow, new.input, now)
        };
        Self::of(run)
    }

    pub(super) fn of(run: Run) -> Self {
        Self {
            run,
            records: Vec::new(),
            attempts: BTreeMap::new(),
            ticket: None,
            failed_step: None,
            duplicates: VecDeque::new(),
        }
    }

    /// Gives the run to a worker, in a new attempt.
    pub(super) fn claim(
        &mut self,
        worker: WorkerId,
        build: String,
        ticket: Option<i64>,
        now: Timestamp,
    ) {
        self.run.state = RunState::Running;
        self.run.worker = Some(worker);
        self.run.build = Some(build);
        self.run.attempt += 1;
        self.run.due_at = None;
        self.run.waits_for = None;
        self.run.started_at.get_or_insert(now);
        self.ticket = ticket;
    }

    fn add_duplicate(&mut self, from: RunId, duplicate: Duplicate) {
        if self.duplicates.iter().any(|(id, _)| *id == from) {
            return;
        }
        self.run.duplicates += 1;
        self.duplicates.push_back((from, duplicate));
        if self.duplicates.len() > DUPLICATES_KEPT_MAX {
            self.duplicates.pop_front();
        }
    }
}
