//! The board: what a run's futures and its driver tell each other.
//!
//! Owns: the leaves (the `ctx` futures that are alive), whose turn it is, what is to be recorded,
//! and the run's own time and randomness. Never writes to the store and never polls user code.
//!
//! A leaf is asked for at its first poll. If its result is recorded it waits to be offered it;
//! otherwise it waits until the driver allows it to begin. Either way its first poll is pending,
//! so that `select!` and friends see every result in the order of the records.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::past::{Leftover, Past, PastStep};
use super::wake::{Here, Wakes};
use crate::limits::{HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, HISTORY_WARN_PERCENT};
use crate::store::Store;
use crate::{Code, Entry, Failure, Json, Record, RunId, Timestamp, Uuid, Waits};

/// The name of a leaf within its run's execution.
pub(crate) type LeafId = u64;

/// What a run's futures and its driver share.
pub(crate) struct Board {
    pub(crate) run: RunId,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) store: Arc<dyn Store>,
    /// Turns true when the run is asked to end.
    cancelled: watch::Sender<bool>,
    inner: Mutex<Inner>,
}

struct Inner {
    ended: bool,
    past: Past,
    leaves: HashMap<LeafId, Leaf>,
    leaf_next: LeafId,
    /// How many steps of each name there are.
    numbers: HashMap<String, u32>,
    /// Explicit step ids that are in use.
    explicit: HashSet<String>,
    /// Unrecorded leaves that wait for the driver's leave to begin.
    asked: Vec<LeafId>,
    /// Recorded leaves that wait for their turn, by sequence number.
    ready: BTreeMap<u64, LeafId>,
    /// The result that is visible in the poll under way.
    offer: Option<LeafId>,
    /// Leaves that wait for a time.
    alarms: BTreeSet<(Timestamp, LeafId)>,
    /// Leaves whose body is executing.
    active: usize,
    outbox: Vec<Draft>,
    /// The time of the latest delivered record: the run's own time.
    now: Timestamp,
    randoms: u64,
    usage: Usage,
    /// The step whose failure was delivered last: what a retry of the run voids, if the function
    /// fails with an error of its own.
    last_failed: Option<Arc<str>>,
    trouble: Option<Trouble>,
    continue_as: Option<Json>,
}

/// How much of its history limits a run has used.
#[derive(Default)]
struct Usage {
    records: usize,
    bytes: usize,
    warned: bool,
}

struct Leaf {
    step: Arc<str>,
    waker: Waker,
    phase: Phase,
    kind: LeafKind,
    /// The number of the try that is next or under way.
    try_number: u32,
}

/// What kind of future a leaf is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafKind {
    /// A step.
    Step,
    /// A sleep.
    Timer,
}

enum Phase {
    /// Wants to begin.
    Asked,
    /// May begin at its next poll.
    Allowed,
    /// Its body is executing.
    Active,
    /// Waits for a time.
    Pausing(Timestamp),
    /// Its record is on the way to the store.
    Recording,
    /// Waits to be offered its result. The record is kept only on replay.
    Recorded { seq: u64, at: Timestamp, record: Option<Record> },
    /// Was offered its result while nobody polled it; stands back until it is polled again.
    Withdrawn { seq: u64, at: Timestamp, record: Option<Record> },
}

/// What a leaf is told when it is polled.
pub(crate) enum Told {
    /// Nothing yet.
    Wait,
    /// Begin: make the body, or look at the time.
    Begin,
    /// The body may be polled.
    Proceed,
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

/// Why a run cannot go on under this build.
pub(crate) struct Trouble {
    pub(crate) code: Code,
    pub(crate) detail: String,
}

impl Board {
    pub(crate) fn new(
        run: RunId,
        store: Arc<dyn Store>,
        past: Past,
        used: (usize, usize),
        now: Timestamp,
    ) -> Arc<Self> {
        let (records, bytes) = used;
        let inner = Inner {
            ended: false,
            past,
            leaves: HashMap::new(),
            leaf_next: 0,
            numbers: HashMap::new(),
            explicit: HashSet::new(),
            asked: Vec::new(),
            ready: BTreeMap::new(),
            offer: None,
            alarms: BTreeSet::new(),
            active: 0,
            outbox: Vec::new(),
            now,
            randoms: 0,
            usage: Usage { records, bytes, warned: false },
            last_failed: None,
            trouble: None,
            continue_as: None,
        };
        let cancelled = watch::Sender::new(false);
        let inner = Mutex::new(inner);
        Arc::new(Self { run, wakes: Wakes::new(), store, cancelled, inner })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the workflow function's side calls.
impl Board {
    /// Refuses a use of the run from where it does not belong.
    pub(crate) fn check_place(&self) -> Result<(), Failure> {
        let code = match Here::now() {
            Here::Function(token) if token == self.wakes.token => return Ok(()),
            Here::Body(token) if token == self.wakes.token => Code::StepNested,
            _ if self.lock().ended => Code::RunEnded,
            _ => Code::StepOutsideRun,
        };
        let message = format!("{} (run {})", code.advice(), self.run);
        tracing::error!(run = %self.run, code = %code, "{message}");
        Err(Failure::engine(code, message))
    }

    /// The number of a new step of this name.
    pub(crate) fn take_number(&self, name: &str) -> u32 {
        let mut inner = self.lock();
        let number = match inner.numbers.get_mut(name) {
            Some(number) => number,
            None => inner.numbers.entry(name.to_owned()).or_default(),
        };
        *number += 1;
        *number
    }

    /// Gives a number back, if no other was taken since: the step has an explicit id instead.
    pub(crate) fn return_number(&self, name: &str, taken: u32) {
        if let Some(number) = self.lock().numbers.get_mut(name)
            && *number == taken
        {
            *number -= 1;
        }
    }

    /// Whether this explicit id was free; it is taken afterwards.
    pub(crate) fn take_explicit(&self, step: &str) -> bool {
        self.lock().explicit.insert(step.to_owned())
    }

    /// The run's own time: that of the latest result it was given.
    pub(crate) fn now(&self) -> Timestamp {
        self.lock().now
    }

    /// A number derived from the run and the count of such calls.
    pub(crate) fn random(&self) -> [u8; 32] {
        let mut inner = self.lock();
        inner.randoms += 1;
        let mut hash = Sha256::new();
        hash.update(self.run.as_u128().to_be_bytes());
        hash.update(inner.randoms.to_be_bytes());
        hash.finalize().into()
    }

    pub(crate) fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.random()[..16]);
        Uuid::derived(bytes)
    }

    pub(crate) fn set_continue_as(&self, input: Json) {
        self.lock().continue_as = Some(input);
    }

    pub(crate) fn cancelled(&self) -> watch::Receiver<bool> {
        self.cancelled.subscribe()
    }

    /// Enters a leaf at its first poll, with what is known of its step.
    pub(crate) fn ask(&self, step: &Arc<str>, kind: LeafKind, waker: &Waker) -> (LeafId, PastStep) {
        let mut inner = self.lock();
        let mut known = inner.past.take(step).unwrap_or_default();
        let id = inner.leaf_next;
        inner.leaf_next += 1;
        let phase = match known.last.take() {
            Some(record) => {
                inner.ready.insert(record.seq, id);
                Phase::Recorded { seq: record.seq, at: record.at, record: Some(record) }
            }
            None => {
                inner.asked.push(id);
                Phase::Asked
            }
        };
        let leaf = Leaf {
            step: Arc::clone(step),
            waker: waker.clone(),
            phase,
            kind,
            try_number: known.tries + 1,
        };
        inner.leaves.insert(id, leaf);
        (id, known)
    }

    /// Tells a leaf, at each later poll, what it may do.
    pub(crate) fn tell(&self, id: LeafId, waker: &Waker) -> Told {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(leaf) = inner.leaves.get_mut(&id) else { return Told::Wait };
        if !leaf.waker.will_wake(waker) {
            leaf.waker.clone_from(waker);
        }
        match std::mem::replace(&mut leaf.phase, Phase::Recording) {
            Phase::Recorded { at, record, .. } if inner.offer == Some(id) => {
                inner.offer = None;
                inner.now = inner.now.max(at);
                inner.leaves.remove(&id);
                return Told::Take(record);
            }
            Phase::Withdrawn { seq, at, record } => {
                leaf.phase = Phase::Recorded { seq, at, record };
                inner.ready.insert(seq, id);
            }
            Phase::Allowed if inner.usage.is_full(inner.active) => {
                inner.leaves.remove(&id);
                return Told::Full;
            }
            Phase::Allowed => {
                leaf.phase = Phase::Active;
                inner.active += 1;
                return Told::Begin;
            }
            Phase::Active => {
                leaf.phase = Phase::Active;
                return Told::Proceed;
            }
            other => leaf.phase = other,
        }
        Told::Wait
    }

    /// Hands something to the driver to record. `then` is where the leaf goes meanwhile.
    pub(crate) fn report(&self, draft: Draft, then: Then) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(leaf) = inner.leaves.get_mut(&draft.leaf) else { return };
        if matches!(leaf.phase, Phase::Active) {
            inner.active -= 1;
        }
        leaf.phase = match then {
            Then::Record => Phase::Recording,
            Then::Pause(until) => {
                leaf.try_number = draft.try_number + 1;
                inner.alarms.insert((until, draft.leaf));
                Phase::Pausing(until)
            }
        };
        inner.outbox.push(draft);
    }

    /// Lets a leaf that was told to begin wait for a time first; it is told again then.
    pub(crate) fn pause(&self, id: LeafId, until: Timestamp) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(leaf) = inner.leaves.get_mut(&id) {
            if matches!(leaf.phase, Phase::Active) {
                inner.active -= 1;
            }
            leaf.phase = Phase::Pausing(until);
            inner.alarms.insert((until, id));
        }
    }

    /// Takes out a leaf whose future was dropped.
    pub(crate) fn forget(&self, id: LeafId) {
        let mut inner = self.lock();
        let Some(leaf) = inner.leaves.remove(&id) else { return };
        match leaf.phase {
            Phase::Active => inner.active -= 1,
            Phase::Pausing(until) => drop(inner.alarms.remove(&(until, id))),
            Phase::Recorded { seq, .. } => drop(inner.ready.remove(&seq)),
            _ => {}
        }
        if inner.offer == Some(id) {
            inner.offer = None;
        }
        // A waker may own a future of the user's, whose drop may come back to this board.
        drop(inner);
        drop(leaf.waker);
    }

    /// Notes that a step's failure was delivered.
    pub(crate) fn failed(&self, step: &Arc<str>) {
        self.lock().last_failed = Some(Arc::clone(step));
    }

    /// Notes that the run cannot go on under this build.
    pub(crate) fn trouble(&self, code: Code, detail: String) {
        self.lock().trouble.get_or_insert(Trouble { code, detail });
    }
}

/// Where a leaf goes when it has reported something.
pub(crate) enum Then {
    /// It waits until that is recorded.
    Record,
    /// It waits for a time, for its next try.
    Pause(Timestamp),
}

/// What the driver calls.
impl Board {
    /// Makes the next recorded result visible, if somebody waits for one.
    pub(crate) fn offer_next(&self) -> bool {
        let mut inner = self.lock();
        let Some((_, id)) = inner.ready.pop_first() else { return false };
        inner.offer = Some(id);
        let waker = inner.leaves.get(&id).map(|leaf| leaf.waker.clone());
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Withdraws a result that nobody took in the poll it was offered for.
    pub(crate) fn withdraw(&self) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let untaken = inner.offer.take().and_then(|id| inner.leaves.get_mut(&id));
        if let Some(leaf) = untaken
            && let Phase::Recorded { seq, at, record } = &mut leaf.phase
        {
            leaf.phase = Phase::Withdrawn { seq: *seq, at: *at, record: record.take() };
        }
    }

    /// Whether unrecorded leaves wait for leave to begin.
    pub(crate) fn is_asked(&self) -> bool {
        !self.lock().asked.is_empty()
    }

    /// Lets every unrecorded leaf begin.
    pub(crate) fn allow_all(&self) {
        let mut inner = self.lock();
        let asked = std::mem::take(&mut inner.asked);
        let wakers: Vec<_> = asked.into_iter().filter_map(|id| inner.allow(id)).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the leaves whose bodies woke, so that whatever holds them polls them.
    pub(crate) fn wake_leaves(&self, leaves: &[LeafId]) {
        let inner = self.lock();
        let woken = leaves.iter().filter_map(|id| inner.leaves.get(id));
        let wakers: Vec<_> = woken.map(|leaf| leaf.waker.clone()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Lets the leaves go on whose time has come.
    pub(crate) fn ring(&self, now: Timestamp) {
        let mut inner = self.lock();
        let mut wakers = Vec::new();
        while inner.alarms.first().is_some_and(|(until, _)| *until <= now) {
            let rung = inner.alarms.pop_first();
            wakers.extend(rung.and_then(|(_, id)| inner.allow(id)));
        }
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What has come in to be recorded.
    pub(crate) fn take_drafts(&self) -> Vec<Draft> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let drafts = std::mem::take(&mut inner.outbox);
        for draft in &drafts {
            inner.usage.add(draft, self.run);
        }
        drafts
    }

    /// Whether exactly one result is to be recorded and nothing else is going on, so that it may
    /// be shown to the function before it is durable.
    pub(crate) fn has_lone_result(&self) -> bool {
        let inner = self.lock();
        inner.active == 0
            && inner.asked.is_empty()
            && matches!(&inner.outbox[..], [draft] if draft.entry.kind().is_final())
    }

    /// Lets a leaf have the result that it reported, now that it has its place in the order.
    pub(crate) fn recorded(&self, id: LeafId, record: &Record) {
        let mut inner = self.lock();
        let Some(leaf) = inner.leaves.get_mut(&id) else { return };
        if record.entry.kind().is_final() {
            leaf.phase = Phase::Recorded { seq: record.seq, at: record.at, record: None };
            inner.ready.insert(record.seq, id);
        } else if matches!(record.entry, Entry::Began) {
            let waker = inner.allow(id);
            drop(inner);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn active(&self) -> usize {
        self.lock().active
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    /// The nearest time that a leaf waits for, and what it is.
    pub(crate) fn next_alarm(&self) -> Option<(Timestamp, Waits)> {
        let inner = self.lock();
        let (until, id) = inner.alarms.first()?;
        let leaf = inner.leaves.get(id)?;
        let step = leaf.step.to_string();
        let waits = match leaf.kind {
            LeafKind::Timer => Waits::Timer { step },
            LeafKind::Step => Waits::Retry { step, try_number: leaf.try_number },
        };
        Some((*until, waits))
    }

    pub(crate) fn leftover(&self, build: &str) -> Option<Leftover> {
        self.lock().past.leftover(build)
    }

    /// The steps that want to begin, for people.
    pub(crate) fn asked_steps(&self) -> Vec<String> {
        let inner = self.lock();
        let asked = inner.asked.iter().filter_map(|id| inner.leaves.get(id));
        asked.map(|leaf| leaf.step.to_string()).collect()
    }

    pub(crate) fn take_trouble(&self) -> Option<Trouble> {
        self.lock().trouble.take()
    }

    pub(crate) fn last_failed(&self) -> Option<String> {
        self.lock().last_failed.as_deref().map(str::to_owned)
    }

    pub(crate) fn take_continue_as(&self) -> Option<Json> {
        self.lock().continue_as.take()
    }

    /// Tells the bodies that the run is asked to end.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// From here on every use of the run's `Ctx` is refused.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
    }
}

impl Inner {
    /// Lets a leaf begin at its next poll; returns what wakes it.
    fn allow(&mut self, id: LeafId) -> Option<Waker> {
        let leaf = self.leaves.get_mut(&id)?;
        leaf.phase = Phase::Allowed;
        Some(leaf.waker.clone())
    }
}

impl Usage {
    fn is_full(&self, active: usize) -> bool {
        self.records + active >= HISTORY_RECORDS_MAX || self.bytes >= HISTORY_BYTES_MAX
    }

    fn add(&mut self, draft: &Draft, run: RunId) {
        self.records += 1;
        self.bytes += draft.entry.bytes() + draft.step.len();
        let full = self.records * 100 >= HISTORY_RECORDS_MAX * HISTORY_WARN_PERCENT
            || self.bytes * 100 >= HISTORY_BYTES_MAX * HISTORY_WARN_PERCENT;
        if full && !self.warned {
            self.warned = true;
            tracing::warn!(
                %run,
                records = self.records,
                bytes = self.bytes,
                "history at {HISTORY_WARN_PERCENT} % of its limit; go on with ctx.continue_as"
            );
        }
    }
}
