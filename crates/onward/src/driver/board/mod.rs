//! The board: what a run's futures and its driver tell each other.
//!
//! Owns: the leaves (the `ctx` futures that are alive), whose turn it is, what is to be recorded,
//! and the run's own time and randomness. Never writes to the store and never polls user code.
//!
//! A leaf is asked for at its first poll. If its result is recorded it waits to be offered it;
//! otherwise it waits until the driver allows it to begin. Either way its first poll is pending,
//! so that `select!` and friends see every result in the order of the records.

mod asked;
mod chance;
mod inbox;
mod keyed;
mod leaf;
mod notepad;
mod number;
mod order;
mod place;
mod undo;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub(crate) use self::chance::Chance;
pub(crate) use self::inbox::Awaited;
use self::inbox::Inbox;
use self::keyed::GivenUp;
pub(crate) use self::keyed::{Hold, KeyAsk, KeyTold};
use self::leaf::{Leaf, Leaves, Phase, Standing};
pub(crate) use self::leaf::{LeafId, LeafKind};
pub(crate) use self::notepad::Notepad;
pub(crate) use self::number::Numbered;
use self::number::Numbers;
use self::place::Places;
pub(crate) use self::place::Seat;
use self::undo::Undos;
pub(crate) use self::undo::{Undo, UndoBody, UndoWork};
use super::Stop;
use super::past::Past;
use super::wake::Wakes;
use crate::store::{Lease, NewRun, RecordRef, Signal, Store, TransactionBody};
use crate::{Code, Entry, Failure, Json, Record, RecordKind, RunId, Timestamp};

/// What a run's futures and its driver share.
pub(crate) struct Board {
    pub(crate) run: RunId,
    pub(crate) workflow: String,
    attempt: u32,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) store: Arc<dyn Store>,
    /// Turns true when the run is asked to end.
    cancelled: watch::Sender<bool>,
    /// The keys that dropped steps held.
    given_up: Arc<GivenUp>,
    inner: Mutex<Inner>,
}

struct Inner {
    ended: bool,
    past: Past,
    leaves: Leaves,
    numbers: Numbers,
    /// Unrecorded leaves that wait for the driver's leave to begin.
    asked: Vec<LeafId>,
    /// Recorded leaves that wait for their turn, by sequence number.
    ready: BTreeMap<u64, LeafId>,
    /// The result that is visible in the poll under way.
    offer: Option<LeafId>,
    /// Leaves that wait for a time.
    alarms: BTreeSet<(Timestamp, LeafId)>,
    /// Leaves that wait for a signal that has not come.
    awaiting: BTreeSet<LeafId>,
    inbox: Inbox,
    outbox: Vec<Draft>,
    /// Transactions that are to be executed.
    transactions: Vec<Transaction>,
    /// What is to be done about keys.
    key_asks: Vec<KeyAsk>,
    /// Children that are to be started.
    children: Vec<Child>,
    /// Sequence numbers, and which are open.
    places: Places,
    /// The time of the latest delivered record: the run's own time.
    now: Timestamp,
    chance: Chance,
    usage: Usage,
    /// The step whose failure was delivered last: what a retry of the run voids, if the function
    /// fails with an error of its own.
    last_failed: Option<Arc<str>>,
    trouble: Option<Trouble>,
    /// Why the run is asked to stop.
    stopping: Option<Stop>,
    /// Whether the function is past its records: something began that they do not have.
    went_on: bool,
    continue_as: Option<Json>,
    /// What the run notes on itself.
    notepad: Notepad,
    undos: Undos,
}

/// How much of its history limits a run has used.
#[derive(Default)]
struct Usage {
    records: usize,
    bytes: usize,
    warned: bool,
    /// Whether there is no limit: what undoes a full history must find room in it.
    is_open: bool,
}

/// What a leaf is told when it is polled.
pub(crate) enum Told {
    /// Nothing yet.
    Wait,
    /// Begin: make the body, or look at the time.
    Begin,
    /// The body may be polled.
    Proceed,
    /// The transaction failed.
    Failed(Failure),
    /// What became of the step's key.
    Key(KeyTold),
    /// Here is the result: from the history, or the one the leaf kept.
    Take(Option<Record>),
    /// The history is full; do not begin.
    Full,
}

/// Something to record, before it has its sequence number.
pub(crate) struct Draft {
    pub(crate) leaf: LeafId,
    pub(crate) step: Arc<str>,
    pub(crate) entry: Entry,
    pub(crate) try_number: u32,
    pub(crate) began_at: Timestamp,
}

impl Draft {
    /// Bytes of payload, as the history limit counts them.
    fn bytes(&self) -> usize {
        self.entry.bytes() + self.step.len()
    }
}

/// A transaction that is to be executed.
pub(crate) struct Transaction {
    pub(crate) leaf: LeafId,
    pub(crate) step: Arc<str>,
    pub(crate) body: TransactionBody,
    pub(crate) try_number: u32,
    pub(crate) began_at: Timestamp,
}

/// A child that is to be started.
pub(crate) struct Child {
    pub(crate) leaf: LeafId,
    pub(crate) run: NewRun,
}

/// What is known of a run when its execution begins.
pub(crate) struct Known {
    pub(crate) workflow: String,
    pub(crate) past: Past,
    /// Records and bytes of its history.
    pub(crate) used: (usize, usize),
    /// The run's own time.
    pub(crate) now: Timestamp,
    /// The number and the time of the last record, voided ones included.
    pub(crate) last: (u64, Timestamp),
    /// The last record that counts.
    pub(crate) latest: Option<RecordRef>,
    /// Signals that are not recorded.
    pub(crate) signals: Vec<Signal>,
    pub(crate) notepad: Notepad,
    pub(crate) chance: Chance,
    /// The steps that are recorded as undoable, by their places.
    pub(crate) undoable: HashMap<u64, String>,
}

/// A draft that has its place in the history.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) leaf: LeafId,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) kind: RecordKind,
}

/// Why a run cannot go on under this build.
pub(crate) struct Trouble {
    pub(crate) code: Code,
    pub(crate) detail: String,
}

impl Board {
    pub(crate) fn new(lease: Lease, store: Arc<dyn Store>, known: Known) -> Arc<Self> {
        let Known { workflow, mut past, used, now, last, latest, .. } = known;
        let Known { signals, notepad, chance, undoable, .. } = known;
        let (records, bytes) = used;
        let (last_seq, last_at) = last;
        let inbox = Inbox::of(past.take_arrived(), signals);
        let inner = Inner {
            ended: false,
            past,
            leaves: Leaves::default(),
            numbers: Numbers::default(),
            asked: Vec::new(),
            ready: BTreeMap::new(),
            offer: None,
            alarms: BTreeSet::new(),
            awaiting: BTreeSet::new(),
            inbox,
            outbox: Vec::new(),
            transactions: Vec::new(),
            key_asks: Vec::new(),
            children: Vec::new(),
            places: Places::after(last_seq, last_at, latest),
            now,
            usage: Usage { records, bytes, ..Usage::default() },
            last_failed: None,
            trouble: None,
            stopping: None,
            went_on: records == 0,
            continue_as: None,
            notepad,
            undos: Undos::of(undoable, chance.inherited()),
            chance,
        };
        let cancelled = watch::Sender::new(false);
        let inner = Mutex::new(inner);
        let Lease { run, attempt, .. } = lease;
        let (wakes, given_up) = (Wakes::new(), Arc::default());
        Arc::new(Self { run, workflow, attempt, wakes, store, cancelled, given_up, inner })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a leaf goes when it has reported something.
pub(crate) enum Then {
    /// It waits until that is recorded.
    Record,
    /// It waits until that is recorded, and then for the time of its next try.
    Pause(Timestamp),
}
