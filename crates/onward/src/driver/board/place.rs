//! Places in the history: sequence numbers, which of them are still open, and which are recorded last.
//!
//! Owns: taking a number together with entering it as open, under the board's lock, and closing
//! it when what became of it is known; and what the next write follows. Never delivers; a result is offered only while no lower
//! number is open, so that it is seen in the order in which a replay sees it.
//!
//! Two kinds of writes take numbers: the driver's own, one write at a time, and transactions,
//! each when its body ends, on whatever thread that is. A number whose write is undone is a gap.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Board, Draft, LeafId, Phase, Placed};
use crate::store::{self, RecordRef, Transacted};
use crate::{Entry, Json, Record, RecordKind, Timestamp};

/// The numbers of a run's records.
pub(super) struct Places {
    last_seq: u64,
    last_at: Timestamp,
    /// Numbers that are taken and of which it is not known whether they are recorded.
    open: BTreeSet<u64>,
    /// The places of transactions that are open.
    transactions: HashMap<LeafId, (u64, Timestamp)>,
    /// The recorded ones that no recorded write follows: mostly the last alone, and more where transactions
    /// were answered at the same time.
    latest: Vec<RecordRef>,
}

impl Places {
    pub(super) fn after(last_seq: u64, last_at: Timestamp, latest: Option<RecordRef>) -> Self {
        let (open, transactions) = (BTreeSet::new(), HashMap::new());
        Self { last_seq, last_at, open, transactions, latest: latest.into_iter().collect() }
    }

    /// Notes that a write is recorded that ends with this record and follows these.
    fn recorded(&mut self, last: RecordRef, follows: &[RecordRef]) {
        self.latest.retain(|latest| !follows.contains(latest));
        self.latest.push(last);
    }

    fn take(&mut self, now: Timestamp) -> (u64, Timestamp) {
        self.last_seq += 1;
        self.last_at = self.last_at.max(now);
        self.open.insert(self.last_seq);
        (self.last_seq, self.last_at)
    }

    /// The place of a leaf's transaction: the same one, however often its body is executed before
    /// the outcome is known. With another number, a first execution whose commit turns out to
    /// have been done after all would stand before results that were delivered meanwhile.
    fn take_for(&mut self, leaf: LeafId, now: Timestamp) -> (u64, Timestamp) {
        if let Some(place) = self.transactions.get(&leaf) {
            return *place;
        }
        let place = self.take(now);
        self.transactions.insert(leaf, place);
        place
    }

    pub(super) fn close(&mut self, seq: u64) {
        self.open.remove(&seq);
    }

    fn close_transaction(&mut self, leaf: LeafId) {
        if let Some((seq, _)) = self.transactions.remove(&leaf) {
            self.close(seq);
        }
    }

    pub(super) fn has_transaction(&self, leaf: LeafId) -> bool {
        self.transactions.contains_key(&leaf)
    }

    pub(super) fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a number below this one is open.
    pub(super) fn is_open_below(&self, seq: u64) -> bool {
        self.open.first().is_some_and(|open| *open < seq)
    }
}

impl Board {
    /// Gives a draft its place in the run's history.
    pub(crate) fn place(&self, draft: Draft) -> (Placed, Record) {
        let now = self.store.clock().now();
        let mut inner = self.lock();
        let (seq, at) = inner.places.take(now);
        let undoable = inner.undos.note(&draft.step, &draft.entry, seq);
        drop(inner);
        let placed = Placed { leaf: draft.leaf, seq, at, kind: draft.entry.kind() };
        let record = Record { undoable, ..self.record(draft, seq, at) };
        if placed.kind == RecordKind::Arrived {
            self.lock().inbox.send(&record);
        }
        (placed, record)
    }

    /// Gives a transaction whose body has ended its place, unless its future was dropped: then
    /// nobody is to see what it did.
    pub(crate) fn place_transaction(&self, draft: Draft) -> Option<Record> {
        let now = self.store.clock().now();
        let mut inner = self.lock();
        if !inner.leaves.contains(draft.leaf) {
            return None;
        }
        let (seq, at) = inner.places.take_for(draft.leaf, now);
        let undoable = inner.undos.is_undoable(&draft.step, &draft.entry);
        drop(inner);
        Some(Record { undoable, ..self.record(draft, seq, at) })
    }

    fn record(&self, draft: Draft, seq: u64, at: Timestamp) -> Record {
        Record {
            try_number: draft.try_number,
            attempt: self.attempt,
            began_at: draft.began_at,
            foreign: self.wakes.take_foreign(),
            ..Record::new(seq, &*draft.step, draft.entry, at)
        }
    }

    /// What a write follows that is sent now.
    pub(crate) fn latest(&self) -> Vec<RecordRef> {
        self.lock().places.latest.clone()
    }

    /// Notes that a write is recorded that ends with this record and follows these.
    pub(crate) fn is_recorded(&self, last: RecordRef, follows: &[RecordRef]) {
        self.lock().places.recorded(last, follows);
    }

    /// Whether a leaf is alive.
    pub(crate) fn is_alive(&self, id: LeafId) -> bool {
        self.lock().leaves.contains(id)
    }

    /// Tells a leaf what became of its transaction, and closes the number that it took.
    pub(crate) fn transacted(&self, id: LeafId, transacted: Transacted) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.places.close_transaction(id);
        if let Transacted::Recorded(record) = &transacted {
            inner.usage.add(record.bytes(), self.run);
            inner.undos.note(&record.step, &record.entry, record.seq);
        }
        let Some(leaf) = inner.leaves.get_mut(id) else { return };
        match transacted {
            Transacted::Recorded(record) => {
                let (seq, at) = (record.seq, record.at);
                inner.leaves.set(id, Phase::Recorded { seq, at, record: Some(record) });
                inner.ready.insert(seq, id);
            }
            // The leaf decides whether there is another try, as for any body that failed.
            Transacted::Failed(failure) => {
                leaf.failed = Some(failure);
                let waker = leaf.waker.clone();
                drop(guard);
                waker.wake();
            }
            Transacted::Unwanted => {}
        }
    }
}

/// A transaction's seat in the history of its run.
pub(crate) struct Seat {
    pub(crate) board: Arc<Board>,
    pub(crate) leaf: LeafId,
    pub(crate) step: Arc<str>,
    pub(crate) try_number: u32,
    pub(crate) began_at: Timestamp,
}

impl store::Place for Seat {
    fn is_wanted(&self) -> bool {
        self.board.is_alive(self.leaf)
    }

    fn place(&self, result: Json) -> Option<Record> {
        self.board.place_transaction(Draft {
            leaf: self.leaf,
            step: Arc::clone(&self.step),
            entry: Entry::Done(result),
            try_number: self.try_number,
            began_at: self.began_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn places() -> Places {
        Places::after(4, NOW, None)
    }

    #[test]
    fn a_number_is_open_until_it_is_closed() {
        let mut places = places();
        let ((five, _), (six, _)) = (places.take(NOW), places.take(NOW));
        assert!(places.is_open_below(six) && !places.is_open_below(five));
        places.close(six);
        assert!(places.is_open_below(six), "what is answered first does not overtake");
        places.close(five);
        assert!(!places.is_any_open());
    }

    #[test]
    fn a_transaction_that_is_executed_again_keeps_its_place() {
        let mut places = places();
        let first = places.take_for(1, NOW);
        let other = places.take(Timestamp::from_millis(2_000));
        assert_eq!(places.take_for(1, Timestamp::from_millis(3_000)), first);
        assert!(first.1 <= other.1, "times are in the order of the numbers");
        places.close_transaction(1);
        assert!(!places.is_open_below(other.0), "one that is undone leaves a gap");
        assert!(places.take_for(1, NOW).0 > other.0, "its next try has a place of its own");
    }

    #[test]
    fn a_write_follows_all_that_no_other_follows() {
        let name = |seq| RecordRef { seq, step: "a".into() };
        let mut places = Places::after(4, NOW, Some(name(4)));
        // Two that are on their way at the same time.
        let (one, other) = (places.latest.clone(), places.latest.clone());
        places.recorded(name(5), &one);
        assert_eq!(places.latest, [name(5)]);
        places.recorded(name(6), &other);
        assert_eq!(places.latest, [name(5), name(6)], "neither says that the other is there");
        let both = places.latest.clone();
        places.recorded(name(7), &both);
        assert_eq!(places.latest, [name(7)]);
    }

    #[test]
    fn times_never_go_back() {
        let mut places = places();
        assert_eq!(places.take(Timestamp::from_millis(1)), (5, NOW));
    }
}
