//! Signals: what has come in for the run, and who waits for it.
//!
//! Owns: which signals are recorded, and to whom a recorded one goes. Never binds a signal to a
//! wait before it is delivered: the first one of a name goes to whichever wait of that name is
//! alive then, so a wait that is dropped swallows nothing.
//!
//! A name here is a step without its number: a signal is recorded as the step `name#no`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use super::{Board, Draft, Inner, Leaf, LeafId, LeafKind, Phase, Then, Told};
use crate::store::Signal;
use crate::{Entry, Json, Record, RunId, Timestamp, Waits};

/// The leaf of a draft that belongs to none.
pub(super) const NOBODY: LeafId = LeafId::MAX;

/// What has come in for a run.
#[derive(Default)]
pub(super) struct Inbox {
    names: HashMap<Arc<str>, Name>,
    /// Signals whose records are on their way, by their place.
    sending: HashMap<u64, Record>,
    /// Whether nothing is recorded any more: the waits are dropped because the attempt ends.
    closed: bool,
}

/// What a leaf waits for in here.
#[derive(Clone)]
pub(crate) struct Awaited {
    pub(crate) waits: Waits,
    /// From when on a signal comes too late for it.
    pub(crate) due: Option<Timestamp>,
}

/// The signals of one name.
#[derive(Default)]
struct Name {
    /// Not recorded, in the order in which they came.
    new: VecDeque<Signal>,
    /// How many of them are on their way to the store.
    sending: usize,
    /// Recorded and not taken, in order.
    kept: VecDeque<Record>,
    /// Who waits, in the order of asking. The first gets the first that is kept, and so on.
    waits: Vec<LeafId>,
}

impl Inbox {
    /// What a run finds when its execution begins: recorded signals, and new ones.
    pub(super) fn of(kept: Vec<Record>, new: Vec<Signal>) -> Self {
        let mut inbox = Self::default();
        for record in kept {
            inbox.name(name_of(&record)).kept.push_back(record);
        }
        new.into_iter().for_each(|signal| inbox.add(signal));
        inbox
    }

    fn add(&mut self, signal: Signal) {
        self.name(&signal.step.clone()).new.push_back(signal);
    }

    fn name(&mut self, name: &str) -> &mut Name {
        if !self.names.contains_key(name) {
            self.names.insert(name.into(), Name::default());
        }
        self.names.entry(name.into()).or_default()
    }

    fn leave(&mut self, name: &str, id: LeafId) {
        self.name(name).waits.retain(|wait| *wait != id);
    }

    /// The recorded signals that nobody has taken.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Record> {
        self.names.values().flat_map(|name| &name.kept)
    }

    /// Notes that the record of a signal is on its way.
    pub(super) fn send(&mut self, record: &Record) {
        self.sending.insert(record.seq, record.clone());
    }
}

impl Board {
    /// Enters a leaf that waits for a signal, at its first poll.
    pub(crate) fn ask_signal(
        &self,
        name: &Arc<str>,
        kind: LeafKind,
        awaited: Awaited,
        waker: &Waker,
    ) -> LeafId {
        let Awaited { waits, due } = awaited;
        let mut inner = self.lock();
        let leaf = Leaf { waits: Some(waits), due, ..Leaf::new(name, kind, waker) };
        let id = inner.enter(leaf);
        inner.wait(name, id);
        id
    }

    /// Tells a leaf that waits for a signal, at each later poll, what it may do.
    pub(crate) fn tell_signal(&self, id: LeafId, waker: &Waker) -> Told {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(leaf) = inner.leaves.get_mut(&id) else { return Told::Wait };
        if !leaf.waker.will_wake(waker) {
            leaf.waker.clone_from(waker);
        }
        let name = Arc::clone(&leaf.step);
        match &leaf.phase {
            Phase::Recorded { seq, at, .. } if inner.offer == Some(id) => {
                let (seq, at) = (*seq, *at);
                inner.offer = None;
                inner.given(seq, at);
                inner.leaves.remove(&id);
                return Told::Take(inner.take_kept(&name, id, seq));
            }
            Phase::Aside => inner.wait(&name, id),
            Phase::Allowed if inner.usage.is_full(inner.active) => {
                inner.leaves.remove(&id);
                inner.inbox.leave(&name, id);
                return Told::Full;
            }
            Phase::Allowed if leaf.kind == LeafKind::Child => {
                leaf.phase = Phase::Active;
                inner.active += 1;
                return Told::Begin;
            }
            Phase::Allowed => inner.await_signal(&name, id),
            _ => {}
        }
        Told::Wait
    }

    /// Lets a leaf whose child is started wait for its end, or be told once that is recorded.
    pub(crate) fn child_started(&self, id: LeafId, child: RunId) {
        let now = self.store.clock().now();
        let mut inner = self.lock();
        let Some(leaf) = inner.leaves.get(&id) else { return };
        if !matches!(leaf.phase, Phase::Active) {
            return;
        }
        let step = Arc::clone(&leaf.step);
        if leaf.kind == LeafKind::Child {
            inner.active -= 1;
            return inner.await_signal(&step, id);
        }
        drop(inner);
        let entry = Entry::Done(Json::stored(format!("\"{child}\"")));
        let draft = Draft { leaf: id, step, entry, try_number: 1, began_at: now };
        self.report(draft, Then::Record);
    }

    /// Records no signal from now on. The attempt ends, and a wait that is dropped for that must not
    /// make room for another.
    pub(crate) fn close_inbox(&self) {
        self.lock().inbox.closed = true;
    }

    /// Takes in what came.
    pub(crate) fn arrive(&self, signals: Vec<Signal>) {
        let mut inner = self.lock();
        for signal in signals {
            let name: Arc<str> = signal.step.as_str().into();
            inner.inbox.add(signal);
            inner.record_new(&name);
        }
    }

    /// Whether anybody waits for a signal that has not come.
    pub(crate) fn heeds_signals(&self) -> bool {
        !self.lock().awaiting.is_empty()
    }
}

impl Inner {
    /// Lets a leaf wait among those of its name.
    fn wait(&mut self, name: &Arc<str>, id: LeafId) {
        if let Some(leaf) = self.leaves.get_mut(&id) {
            leaf.phase = Phase::Asked;
            self.asked.push(id);
            self.inbox.name(name).waits.push(id);
            self.match_kept(name);
        }
    }

    /// Lets a leaf that may begin wait until a signal comes, and records one that is there.
    fn await_signal(&mut self, name: &Arc<str>, id: LeafId) {
        if let Some(leaf) = self.leaves.get_mut(&id) {
            leaf.phase = Phase::Awaiting;
            self.awaiting.insert(id);
            self.record_new(name);
        }
    }

    /// Records new signals, one for each that waits and is not about to get one. One that came too
    /// late for the wait whose turn it is stays: the time limit ends that wait, and the next may have
    /// it. While no worker was there both may have passed, the time and the coming.
    fn record_new(&mut self, name: &Arc<str>) {
        if self.inbox.closed {
            return;
        }
        let entry = self.inbox.name(name);
        let awaiting = entry.waits.iter().filter(|id| self.awaiting.contains(id));
        let due = |id: &LeafId| self.leaves.get(id).and_then(|leaf| leaf.due);
        let limits: Vec<_> = awaiting.skip(entry.sending).map(due).collect();
        for due in limits {
            let in_time = |signal: &mut Signal| due.is_none_or(|due| signal.at < due);
            let Some(signal) = entry.new.pop_front_if(in_time) else { return };
            entry.sending += 1;
            self.outbox.push(Draft {
                leaf: NOBODY,
                step: signal.recorded_as().into(),
                entry: Entry::Arrived(signal.body),
                try_number: 1,
                began_at: signal.at,
            });
        }
    }

    /// Keeps a signal that is recorded now for whoever waits, or will.
    pub(super) fn arrived(&mut self, seq: u64) {
        let Some(record) = self.inbox.sending.remove(&seq) else { return };
        let name: Arc<str> = name_of(&record).into();
        let entry = self.inbox.name(&name);
        entry.sending = entry.sending.saturating_sub(1);
        entry.kept.push_back(record);
        self.match_kept(&name);
    }

    fn take_kept(&mut self, name: &Arc<str>, id: LeafId, seq: u64) -> Option<Record> {
        self.ready.remove(&seq);
        let entry = self.inbox.name(name);
        entry.waits.retain(|wait| *wait != id);
        let place = entry.kept.iter().position(|record| record.seq == seq)?;
        let record = entry.kept.remove(place);
        self.match_kept(name);
        record
    }

    /// Takes out a leaf that waits for a signal, or sets it aside until it is polled again; what
    /// it would have got goes to the next.
    pub(super) fn leave_inbox(&mut self, name: &Arc<str>, id: LeafId) {
        self.awaiting.remove(&id);
        self.inbox.leave(name, id);
        self.match_kept(name);
        // What came too late for it may be in time for the next.
        self.record_new(name);
    }

    /// Lets each kept signal be ready for who waits in the same place.
    fn match_kept(&mut self, name: &Arc<str>) {
        let entry = self.inbox.name(name);
        for (place, record) in entry.kept.iter().enumerate() {
            let (seq, at) = (record.seq, record.at);
            let waits = entry.waits.get(place);
            let Some(leaf) = waits.and_then(|id| self.leaves.get_mut(id)) else {
                self.ready.remove(&seq);
                continue;
            };
            let Some(id) = waits.copied() else { continue };
            match leaf.phase {
                Phase::Asked => self.asked.retain(|asked| *asked != id),
                Phase::Active => self.active -= 1,
                _ => {}
            }
            self.awaiting.remove(&id);
            leaf.phase = Phase::Recorded { seq, at, record: None };
            self.ready.insert(seq, id);
        }
    }
}

/// The name of a recorded signal.
fn name_of(record: &Record) -> &str {
    record.step.rsplit_once('#').map_or(&*record.step, |(name, _)| name)
}
