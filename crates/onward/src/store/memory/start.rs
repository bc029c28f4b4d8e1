//! Starting runs, and what a key does to a start.
//!
//! Owns: new runs, their keys, and the audit of duplicates. Never decides what a key that is in
//! use means; `rules` does.

use super::*;
use crate::limits::{DUPLICATES_KEPT_MAX, GATHERED_PURGE_BATCH};
use crate::store::rules::{InLine, KeyMet};

/// The gathered starts that met a run: which, when it was made, and when they met it.
pub(super) type Gathered = BTreeMap<RunId, (RunId, Timestamp, Timestamp)>;

pub(super) fn start(state: &mut State, new: NewRun, now: Timestamp) -> Result<Started, Error> {
    if let Some(row) = state.runs.get(&new.id) {
        return Ok(Started { run: new.id, how: how_again(row, &new), at: row.run.created_at });
    }
    if let Some(parent) = &new.parent {
        settle::fenced(state, parent.lease)?;
    }
    let gathered = new.key.as_ref().is_some_and(|key| key.gather.is_some());
    let note = state.gathered.get(&new.id).filter(|_| gathered);
    let is_there =
        |run, made_at| state.runs.get(run).is_some_and(|it| it.run.created_at == made_at);
    if let Some((run, made_at, _)) = note.filter(|(run, made_at, _)| is_there(run, *made_at)) {
        return Ok(gather::met_before(*run, *made_at));
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
    let same_input = state
        .live_key(new.workflow.clone(), key.key.clone(), now)
        .is_some_and(|row| row.fingerprint == key.fingerprint);
    let row = state.row(holder)?;
    let met = match key.gather {
        Some(gather) => gather.met(&row.run, now),
        None => rules::key_met(key.on_conflict, same_input, &row.run),
    };
    let answer = met.answer(&row.run, new.id, now);
    if key.gather.is_some() && met != KeyMet::Fresh {
        let created_at = row.run.created_at;
        note_gathered(state, new.id, (holder, created_at, now));
    }
    match met {
        KeyMet::Fresh => return Ok(insert(state, new, None, now)),
        KeyMet::Later => put_off(state, new, holder, same_input, now)?,
        KeyMet::Replace => replace(state, new, holder, now)?,
        KeyMet::Retry => state.retry(holder, now)?,
        KeyMet::Existing | KeyMet::OtherInput | KeyMet::Taken => {
            let duplicate = Duplicate { at: now, caller: new.caller, same_input };
            state.row_mut(holder)?.add_duplicate(new.id, duplicate);
        }
    }
    answer
}

/// Notes which run a gathered start met, and forgets a few notes that are too old to be asked for.
fn note_gathered(state: &mut State, start: RunId, note: (RunId, Timestamp, Timestamp)) {
    let over = gather::over(note.2);
    let old = state.gathered.iter().filter(|(_, (_, _, at))| *at <= over);
    let old: Vec<_> = old.map(|(start, _)| *start).take(GATHERED_PURGE_BATCH).collect();
    state.gathered.retain(|start, _| !old.contains(start));
    state.gathered.insert(start, note);
}

/// Gives the run that has the key the input of a later start, and puts it off.
fn put_off(
    state: &mut State,
    new: NewRun,
    holder: RunId,
    same_input: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let row = state.row_mut(holder)?;
    gather::put_off(&mut row.run, &new, now);
    row.add_duplicate(new.id, Duplicate { at: now, caller: new.caller, same_input });
    if let Some(key) = new.key
        && let Some(held) = state.keys.get_mut(&(new.workflow, key.key))
    {
        held.fingerprint = key.fingerprint;
    }
    Ok(())
}

/// Ends the run that has the key and starts the new one behind it.
pub(super) fn replace(
    state: &mut State,
    new: NewRun,
    old: RunId,
    now: Timestamp,
) -> Result<(), Error> {
    let ahead = rules::ahead(&state.row(old)?.run).unwrap_or(old);
    match state.cancel(old, now) {
        Ok(()) | Err(Error::Conflict(Conflict::Finished { .. })) => {}
        Err(error) => return Err(error),
    }
    let place = state.join_line(ahead, new.id);
    // The answer says `Replaced`, not `Claimed`: a claimant would hold the run and not know it.
    let new = NewRun { claimant: None, ..new };
    insert(state, new, place, now);
    Ok(())
}

pub(super) fn insert(
    state: &mut State,
    new: NewRun,
    place: Option<InLine>,
    now: Timestamp,
) -> Started {
    let claimant = (new.claimant.clone())
        .filter(|claimant| !state.is_lost(claimant.worker))
        .filter(|_| !state.queues.contains_key(&new.queue));
    if let Some(key) = &new.key {
        let expires_at = key.ttl_ms.map(|ttl| Timestamp::from_millis(now.as_millis() + ttl));
        let row = KeyRow { run: new.id, fingerprint: key.fingerprint, expires_at };
        state.keys.insert((new.workflow.clone(), key.key.clone()), row);
    }
    let id = new.id;
    let mut run = rules::fresh(&new, place, now);
    if let Some(parent) = new.parent.as_ref().and_then(|new| state.runs.get_mut(&new.lease.run)) {
        rules::limit_child(&mut run, parent.run.deadline_at);
        parent.cascades |= parent.run.cancel_at.is_some();
    }
    let mut how = StartedHow::New;
    if let Some(claimant) = claimant
        && run.state == RunState::Queued
    {
        rules::claim(&mut run, claimant.worker, &claimant.build, now);
        how = StartedHow::Claimed;
    }
    state.runs.insert(id, Row::of(run));
    Started { run: id, how, at: now }
}

impl Row {
    pub(super) fn of(run: Run) -> Self {
        Self {
            run,
            records: Vec::new(),
            attempts: BTreeMap::new(),
            ticket: None,
            failed_step: None,
            duplicates: VecDeque::new(),
            signals: Vec::new(),
            signal_bytes: 0,
            log: Vec::new(),
            cascades: false,
            late_at: None,
        }
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
