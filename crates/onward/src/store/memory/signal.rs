//! Signals: what came in for a run from outside.
//!
//! Owns: keeping them, in the order in which they came, and telling a parent of its child's end.
//! Never delivers one.

use super::*;
use crate::limits::SIGNAL_KEYS_CARRIED_MAX;
use crate::store::signal::{self, InboxRest, SignalPage, Signalling};

pub(super) fn signal(
    state: &mut State,
    new: &NewSignal,
    now: Timestamp,
) -> Result<Signalled, Error> {
    let row = state.row_mut(new.run)?;
    let there = row.signals.iter().find(|old| old.name == new.name && old.key == new.key);
    if let Some(there) = there {
        return signal::met(there, new);
    }
    let signalling = signal::signalling(&row.run)?;
    signal::check_room(&row.run, row.signal_bytes, new)?;
    let no = row.keep(new, signalling, now);
    Ok(Signalled { no, was_there: false, at: now })
}

/// Tells the parent of a run that has just ended, if it has one that may ask for it.
pub(super) fn tell_parent(state: &mut State, run: RunId, now: Timestamp) {
    let Some(new) = state.runs.get(&run).and_then(|row| signal::of_end(&row.run)) else { return };
    let Some(parent) = state.runs.get_mut(&new.run) else { return };
    let told = parent.signals.iter().any(|old| old.name == new.name && old.key == new.key);
    if !told && let Some(signalling) = signal::end_signalling(&parent.run) {
        parent.keep(&new, signalling, now);
    }
}

pub(super) fn inbox(state: &State, run: RunId, after: u64) -> Result<Inbox, Error> {
    let row = state.row(run)?;
    let new = row.signals.iter().filter(|signal| signal.no > after);
    let (signals, is_cut) = page(new.cloned());
    Ok(Inbox {
        wakes: row.run.wakes,
        cancel_asked: row.run.cancel_at.is_some(),
        paused: row.run.paused_at.is_some(),
        signals,
        rest: if is_cut { InboxRest::More } else { InboxRest::Nothing },
    })
}

/// As many of them as a look reads, and whether there are more.
pub(super) fn page(mut signals: impl Iterator<Item = Signal>) -> (Vec<Signal>, bool) {
    let mut page = SignalPage::default();
    while page.has_room() {
        match signals.next() {
            Some(signal) => page.add(signal),
            None => return (page.signals, false),
        }
    }
    (page.signals, signals.next().is_some())
}

impl Row {
    fn keep(&mut self, new: &NewSignal, signalling: Signalling, now: Timestamp) -> u64 {
        self.run.signals += 1;
        self.signal_bytes += new.bytes();
        self.signals.push(Signal::of(new, self.run.signals, now));
        match signalling {
            Signalling::Queue => self.queue(now),
            Signalling::Count => self.run.wakes += 1,
            Signalling::Keep => {}
        }
        self.run.signals
    }

    /// The signals that are not in the history.
    pub(super) fn untaken(&self) -> Vec<Signal> {
        let taken = |signal: &Signal| {
            let step = signal.recorded_as();
            self.records.iter().any(|record| record.step == step && record.voided_at.is_none())
        };
        self.signals.iter().filter(|it| !it.is_carried() && !taken(it)).cloned().collect()
    }

    /// What a run that goes on for this one is given: the signals that were not taken, and before
    /// them the latest that were, to know a repeat by. What the engine sent is for this run alone.
    pub(super) fn handed_on(&self) -> Vec<Signal> {
        let mut untaken = self.untaken();
        untaken.retain(|signal| !signal.is_engines());
        let taken =
            |it: &&Signal| it.has_senders_key() && !it.is_engines() && !untaken.contains(it);
        let carried = self.signals.iter().rev().filter(taken).take(SIGNAL_KEYS_CARRIED_MAX);
        let mut all: Vec<Signal> = carried.map(|signal| signal.clone().carried()).collect();
        all.reverse();
        all.extend(untaken);
        all
    }

    /// Takes over what another run handed on.
    pub(super) fn take_over(&mut self, signals: Vec<Signal>) {
        for (signal, no) in signals.into_iter().zip(1..) {
            self.signal_bytes += signal.bytes() as u64;
            self.signals.push(Signal { no, ..signal });
            self.run.signals = no;
        }
    }
}
