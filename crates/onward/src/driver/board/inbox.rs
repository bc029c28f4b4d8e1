//! Signals: what has come in for the run, and who waits for it.
//!
//! Owns: which signals are recorded, and to whom a recorded one goes. Never binds a signal to a
//! wait before it is delivered: the first one of a name goes to whichever wait of that name is
//! alive then, so a wait that is dropped swallows nothing.
//!
//! A name here is a step without its number: a signal is recorded as the step `name#no`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use super::{Board, Draft, Inner, Leaf, LeafId, LeafKind, Phase, Then, Told};
use crate::model::step_id;
use crate::store::Signal;
use crate::{Entry, Json, Record, RecordKind, RunId, Timestamp, Waits};

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
    /// How many looks at the store's inbox began.
    looks: u64,
    /// Limits of waits that are over, and how many looks had begun then.
    limits: Vec<(u64, LeafId)>,
    /// Limits that a look has followed since.
    looked: HashSet<LeafId>,
}

/// What a leaf waits for in here.
#[derive(Clone)]
pub(crate) struct Awaited {
    pub(crate) waits: Waits,
    /// From when on a signal comes too late for it.
    pub(crate) due: Option<Timestamp>,
    /// Its place among the waits of its name.
    pub(crate) order: u32,
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
    /// How many were recorded under this build before this attempt, and nothing since lets the function
    /// go another way.
    same_way: usize,
    /// How many waits there were: none is recorded without one.
    waited: usize,
    /// Who waits, in the order in which they were made: their first polls may come in any. The first
    /// gets the first that is kept, and so on.
    waits: Vec<(u32, LeafId)>,
}

impl Inbox {
    /// What a run finds when its execution begins: recorded signals, as [`Past::take_arrived`] hands them
    /// out, and new ones.
    ///
    /// [`Past::take_arrived`]: crate::driver::past::Past::take_arrived
    pub(super) fn of(kept: Vec<(Record, bool)>, new: Vec<Signal>) -> Self {
        let mut inbox = Self::default();
        for (record, same_way) in kept {
            let name = inbox.name(name_of(&record));
            name.same_way += usize::from(same_way);
            name.kept.push_back(record);
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

    /// Whether a signal of this name has come that is not recorded.
    pub(super) fn has_new(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|name| name.sending > 0 || !name.new.is_empty())
    }

    fn leave(&mut self, name: &str, id: LeafId) {
        self.name(name).waits.retain(|(_, wait)| *wait != id);
    }

    /// The recorded signals that nobody has taken.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Record> {
        self.names.values().flat_map(|name| &name.kept)
    }

    /// The names of which more is recorded under this build than the function has waited for.
    pub(super) fn unasked(&self) -> impl Iterator<Item = &str> {
        let unasked = self.names.iter().filter(|(_, name)| name.waited < name.same_way);
        unasked.map(|(name, _)| &**name)
    }

    /// Forgets the limit of a wait, which was dropped.
    pub(super) fn forget_limit(&mut self, id: LeafId) {
        self.limits.retain(|(_, limit)| *limit != id);
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
        let Awaited { waits, due, order } = awaited;
        let mut inner = self.lock();
        inner.numbers.poll();
        let mut leaf = Leaf::new(name, kind, waker);
        (leaf.waits, leaf.due, leaf.order) = (Some(waits), due, order);
        let id = inner.leaves.enter(leaf);
        inner.inbox.name(name).waited += 1;
        inner.wait(name, id);
        id
    }

    /// Tells a leaf that waits for a signal, at each later poll, what it may do.
    pub(crate) fn tell_signal(&self, id: LeafId, waker: &Waker) -> Told {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.numbers.poll();
        let full = inner.is_full();
        let Some(leaf) = inner.leaves.get_mut(id) else { return Told::Wait };
        if !leaf.waker.will_wake(waker) {
            leaf.waker.clone_from(waker);
        }
        let (name, kind) = (Arc::clone(&leaf.step), leaf.kind);
        match *leaf.phase() {
            Phase::Recorded { seq, at, .. } if inner.offer == Some(id) => {
                inner.offer = None;
                inner.given(seq, at);
                inner.leaves.remove(id);
                return Told::Take(inner.take_kept(&name, id, seq));
            }
            Phase::Aside => inner.wait(&name, id),
            Phase::Allowed if full => {
                inner.leaves.remove(id);
                inner.inbox.leave(&name, id);
                inner.numbers.deliver();
                return Told::Full;
            }
            Phase::Allowed if kind == LeafKind::Child && leaf.is_held_by(inner.stopping) => {}
            // A child whose end has come was started before, and may have been pruned since.
            Phase::Allowed if kind == LeafKind::Child && !inner.inbox.has_new(&name) => {
                inner.leaves.set(id, Phase::Active);
                return Told::Begin;
            }
            Phase::Allowed => inner.await_signal(&name, id),
            Phase::Asked
            | Phase::Active
            | Phase::Pausing(_)
            | Phase::Due
            | Phase::Awaiting
            | Phase::Recording
            | Phase::RecordingTry(_)
            | Phase::Recorded { .. }
            | Phase::Withdrawn { .. } => {}
        }
        Told::Wait
    }

    /// Lets a leaf whose child is started wait for its end, or be told once that is recorded.
    pub(crate) fn child_started(&self, id: LeafId, child: RunId) {
        let now = self.store.clock().now();
        let mut inner = self.lock();
        let Some(leaf) = inner.leaves.get(id) else { return };
        if !matches!(leaf.phase(), Phase::Active) {
            return;
        }
        let step = Arc::clone(&leaf.step);
        if leaf.kind == LeafKind::Child {
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

    /// The signals that are recorded, or are about to be, and that the function was never given. How a
    /// child ended is for this run alone.
    pub(crate) fn undelivered(&self) -> Vec<String> {
        let inner = self.lock();
        let recorded = inner.inbox.kept().chain(inner.inbox.sending.values());
        let drafts = inner.outbox.iter().filter(|it| it.entry.kind() == RecordKind::Arrived);
        let steps = recorded.map(|record| &*record.step).chain(drafts.map(|draft| &*draft.step));
        steps.filter(|step| !step_id::is_child(step)).map(str::to_owned).collect()
    }

    /// Whether anybody waits for a signal that has not come.
    pub(crate) fn heeds_signals(&self) -> bool {
        !self.lock().awaiting.is_empty()
    }

    /// Whether the limit of a wait, which is over, may end it: a signal that came in time may be in
    /// the store all the same, so a look at it comes first. If not, the leaf is told to begin again
    /// then.
    pub(crate) fn may_end_wait(&self, limit: LeafId) -> bool {
        let mut inner = self.lock();
        if inner.inbox.looked.remove(&limit) {
            return true;
        }
        if inner.leaves.set(limit, Phase::Due) {
            let looks = inner.inbox.looks;
            inner.inbox.limits.push((looks, limit));
        }
        false
    }

    /// Whether a limit waits for a look that has not begun.
    pub(crate) fn wants_look(&self) -> bool {
        let inner = self.lock();
        inner.inbox.limits.iter().any(|(looks, _)| *looks == inner.inbox.looks)
    }

    /// Whether a limit waits for a look.
    pub(crate) fn awaits_look(&self) -> bool {
        !self.lock().inbox.limits.is_empty()
    }

    /// Notes that a look begins; gives its number.
    pub(crate) fn begin_look(&self) -> u64 {
        let inbox = &mut self.lock().inbox;
        inbox.looks += 1;
        inbox.looks
    }

    /// Lets the limits end their waits that were over before this look, whose signals have arrived.
    pub(crate) fn looked(&self, look: u64) {
        let mut inner = self.lock();
        let over = inner.inbox.limits.extract_if(.., |(looks, _)| *looks < look);
        let over: Vec<LeafId> = over.map(|(_, limit)| limit).collect();
        inner.inbox.looked.extend(&over);
        let wakers: Vec<_> = over.into_iter().filter_map(|limit| inner.allow(limit)).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    /// Lets a leaf wait among those of its name.
    fn wait(&mut self, name: &Arc<str>, id: LeafId) {
        if self.leaves.set(id, Phase::Asked) {
            let order = self.leaves.get(id).map_or(0, |leaf| leaf.order);
            self.asked.push(id);
            let waits = &mut self.inbox.name(name).waits;
            let before = waits.iter().take_while(|wait| **wait < (order, id)).count();
            waits.insert(before, (order, id));
            self.match_kept(name);
        }
    }

    /// Lets a leaf that may begin wait until a signal comes, and records one that is there.
    fn await_signal(&mut self, name: &Arc<str>, id: LeafId) {
        if self.leaves.set(id, Phase::Awaiting) {
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
        let awaiting = entry.waits.iter().filter(|(_, id)| self.awaiting.contains(id));
        let due = |(_, id): &(u32, LeafId)| self.leaves.get(*id).and_then(|leaf| leaf.due);
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
        entry.waits.retain(|(_, wait)| *wait != id);
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
            let Some((_, id)) = entry.waits.get(place).copied() else {
                self.ready.remove(&seq);
                continue;
            };
            if let Some(Phase::Asked) = self.leaves.get(id).map(Leaf::phase) {
                self.asked.retain(|asked| *asked != id);
            }
            self.awaiting.remove(&id);
            if self.leaves.set(id, Phase::Recorded { seq, at, record: None }) {
                self.ready.insert(seq, id);
            }
        }
        // One that was made before them and is polled only now may have come between.
        for (_, id) in entry.waits.iter().skip(entry.kept.len()) {
            if let Some(Phase::Recorded { .. }) = self.leaves.get(*id).map(Leaf::phase) {
                self.leaves.set(*id, Phase::Asked);
                self.asked.push(*id);
                self.offer.take_if(|offered| offered == id);
            }
        }
    }
}

/// The name of a recorded signal.
fn name_of(record: &Record) -> &str {
    record.step.rsplit_once('#').map_or(&*record.step, |(name, _)| name)
}
