//! The leaves of a run: the `ctx` futures that are alive, and how far each has come.
//!
//! Owns: the phases of a leaf, how many leaves stand where, and what that means for the run. A phase
//! is changed here alone, so that the counts are always right. Never decides when a phase changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use tokio::task::AbortHandle;

use super::{KeyTold, Stop};
use crate::{Failure, Record, Timestamp, Waits};

/// The name of a leaf within its run's execution.
pub(crate) type LeafId = u64;

pub(super) struct Leaf {
    pub(super) step: Arc<str>,
    pub(super) waker: Waker,
    phase: Phase,
    pub(super) kind: LeafKind,
    /// The number of the try that is next or under way.
    pub(super) try_number: u32,
    /// The task of its transaction, while it is under way.
    pub(super) task: Option<AbortHandle>,
    /// What its transaction failed with, until the leaf is told.
    pub(super) failed: Option<Failure>,
    /// What became of its key, until the leaf is told.
    pub(super) key: Option<KeyTold>,
    /// What it waits for, if that is a signal or a key.
    pub(super) waits: Option<Waits>,
    /// From when on a signal comes too late for it.
    pub(super) due: Option<Timestamp>,
    /// Whether that its body begins is recorded, so that it must not wait for another attempt.
    pub(super) is_begun: bool,
    /// Its place among the waits of its name: they are served in the order in which they were made.
    pub(super) order: u32,
}

impl Leaf {
    pub(super) fn new(step: &Arc<str>, kind: LeafKind, waker: &Waker) -> Self {
        Self {
            step: Arc::clone(step),
            waker: waker.clone(),
            phase: Phase::Asked,
            kind,
            try_number: 1,
            task: None,
            failed: None,
            key: None,
            waits: None,
            due: None,
            is_begun: false,
            order: 0,
        }
    }

    /// Whether it may not begin, since the run is asked to stop so. Where the run is only given back, what
    /// is recorded as begun goes on, and a time may pass.
    pub(super) fn is_held_by(&self, stopping: Option<Stop>) -> bool {
        let executes = match self.kind {
            LeafKind::Step | LeafKind::Child | LeafKind::Start => !self.is_begun,
            LeafKind::Timer | LeafKind::Signal => false,
        };
        stopping.is_some_and(|stop| stop >= Stop::Deadline || executes)
    }

    /// The same leaf, whose result is recorded.
    pub(super) fn with_record(mut self, record: Record) -> Self {
        self.phase = Phase::Recorded { seq: record.seq, at: record.at, record: Some(record) };
        self
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(super) fn into_phase(self) -> Phase {
        self.phase
    }
}

/// What kind of future a leaf is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafKind {
    /// A step.
    Step,
    /// A sleep.
    Timer,
    /// A wait for a signal.
    Signal,
    /// A wait for the end of a child, which is started first.
    Child,
    /// The start of a child.
    Start,
}

impl LeafKind {
    /// Whether it waits for a signal.
    pub(super) fn heeds_signals(self) -> bool {
        matches!(self, LeafKind::Signal | LeafKind::Child)
    }
}

pub(super) enum Phase {
    /// Wants to begin.
    Asked,
    /// May begin at its next poll.
    Allowed,
    /// Its body is executing.
    Active,
    /// Waits for a time.
    Pausing(Timestamp),
    /// The limit of a wait for a signal, which is over: a look at the inbox that began after that
    /// comes first.
    Due,
    /// Waits for a signal.
    Awaiting,
    /// Waited for a signal and was not polled when it was offered one; stands back until it is.
    Aside,
    /// Its record is on the way to the store.
    Recording,
    /// The record of a failed try is on the way to the store; then it waits for this time.
    RecordingTry(Timestamp),
    /// Waits to be offered its result. The record is kept only on replay.
    Recorded { seq: u64, at: Timestamp, record: Option<Record> },
    /// Was offered its result while nobody polled it; stands back until it is polled again.
    Withdrawn { seq: u64, at: Timestamp, record: Option<Record> },
}

/// What a leaf means for its run. Whatever the run decides, it decides by these: a new phase does not
/// compile until it has one, and a new one of these not until each decision says what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Waits for leave to begin.
    Wants,
    /// Begins when it is polled.
    Begins,
    /// Executes, or has the driver execute something.
    Executes,
    /// Waits for its record to be durable.
    Records,
    /// Waits for its turn to be given its result.
    Ready,
    /// Waits for the driver's look at the inbox.
    Looks,
    /// Waits for a time or a signal.
    Rests,
    /// Waits until the function polls it again.
    StandsBack,
}

/// How many standings there are.
const STANDINGS: usize = {
    let (mut count, mut last) = (1, Standing::FIRST);
    while let Some(next) = last.next() {
        assert!(
            next as usize == count,
            "standings are gone through in the order in which they are declared"
        );
        (count, last) = (count + 1, next);
    }
    count
};

impl Phase {
    fn standing(&self) -> Standing {
        match self {
            Phase::Asked => Standing::Wants,
            Phase::Allowed => Standing::Begins,
            Phase::Active => Standing::Executes,
            Phase::Recording | Phase::RecordingTry(_) => Standing::Records,
            Phase::Recorded { .. } => Standing::Ready,
            Phase::Due => Standing::Looks,
            Phase::Pausing(_) | Phase::Awaiting => Standing::Rests,
            Phase::Aside | Phase::Withdrawn { .. } => Standing::StandsBack,
        }
    }
}

impl Standing {
    const FIRST: Self = Standing::Wants;

    /// The next one, so that all of them can be gone through and a new one does not compile until it is among them.
    const fn next(self) -> Option<Self> {
        Some(match self {
            Standing::Wants => Standing::Begins,
            Standing::Begins => Standing::Executes,
            Standing::Executes => Standing::Records,
            Standing::Records => Standing::Ready,
            Standing::Ready => Standing::Looks,
            Standing::Looks => Standing::Rests,
            Standing::Rests => Standing::StandsBack,
            Standing::StandsBack => return None,
        })
    }
    /// Whether a run with such a leaf goes on without the clock or the world outside. One that may
    /// begin and is not polled when the function rests is kept, unpolled, by the function.
    fn keeps_awake(self) -> bool {
        match self {
            Standing::Wants
            | Standing::Executes
            | Standing::Records
            | Standing::Ready
            | Standing::Looks => true,
            Standing::Begins | Standing::Rests | Standing::StandsBack => false,
        }
    }

    /// Whether a run that is to be given back waits for such a leaf: it ends within the grace time,
    /// and may be all that the function waits for.
    fn delays_release(self) -> bool {
        match self {
            Standing::Executes | Standing::Records | Standing::Ready => true,
            Standing::Wants
            | Standing::Begins
            | Standing::Looks
            | Standing::Rests
            | Standing::StandsBack => false,
        }
    }

    /// Whether a run that is asked to end waits for such a leaf: for its grace time, and no longer.
    fn delays_end(self) -> bool {
        match self {
            Standing::Executes => true,
            // What is on its way to the store the driver knows of itself.
            Standing::Wants
            | Standing::Begins
            | Standing::Records
            | Standing::Ready
            | Standing::Looks
            | Standing::Rests
            | Standing::StandsBack => false,
        }
    }

    /// Whether such a leaf of a run that is replayed goes beyond its records.
    fn ends_replay(self) -> bool {
        match self {
            Standing::Wants => true,
            // Nothing begins in a replay, so what is not recorded goes no further than that.
            Standing::Begins
            | Standing::Executes
            | Standing::Records
            | Standing::Ready
            | Standing::Looks
            | Standing::Rests
            | Standing::StandsBack => false,
        }
    }

    /// Whether a result that is shown before it is durable could let such a leaf begin something.
    fn forbids_lone_result(self) -> bool {
        match self {
            Standing::Wants
            | Standing::Begins
            | Standing::Executes
            | Standing::Ready
            | Standing::Looks => true,
            Standing::Records | Standing::Rests | Standing::StandsBack => false,
        }
    }
}

/// The leaves of a run.
#[derive(Default)]
pub(super) struct Leaves {
    by_id: BTreeMap<LeafId, Box<Leaf>>,
    next: LeafId,
    /// How many of them stand where, so that no decision goes through all of them.
    counts: [usize; STANDINGS],
}

impl Leaves {
    pub(super) fn enter(&mut self, leaf: Leaf) -> LeafId {
        let id = self.next;
        self.next += 1;
        self.counts[leaf.phase.standing() as usize] += 1;
        self.by_id.insert(id, Box::new(leaf));
        id
    }

    pub(super) fn get(&self, id: LeafId) -> Option<&Leaf> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: LeafId) -> Option<&mut Leaf> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    /// Puts a leaf into another phase; says whether it is there.
    pub(super) fn set(&mut self, id: LeafId, phase: Phase) -> bool {
        self.change(id, |_| phase)
    }

    /// Puts a leaf into the phase that follows from the one it is in; says whether it is there.
    pub(super) fn change(&mut self, id: LeafId, to: impl FnOnce(Phase) -> Phase) -> bool {
        let Some(leaf) = self.by_id.get_mut(&id) else { return false };
        self.counts[leaf.phase.standing() as usize] -= 1;
        leaf.phase = to(std::mem::replace(&mut leaf.phase, Phase::Asked));
        self.counts[leaf.phase.standing() as usize] += 1;
        true
    }

    pub(super) fn remove(&mut self, id: LeafId) -> Option<Box<Leaf>> {
        let leaf = self.by_id.remove(&id)?;
        self.counts[leaf.phase.standing() as usize] -= 1;
        Some(leaf)
    }

    pub(super) fn contains(&self, id: LeafId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn count(&self, standing: Standing) -> usize {
        self.counts[standing as usize]
    }

    fn any(&self, of: impl Fn(Standing) -> bool) -> bool {
        std::iter::successors(Some(Standing::FIRST), |standing| standing.next())
            .any(|standing| of(standing) && self.count(standing) > 0)
    }

    /// Whether the run goes on without the clock or the world outside.
    pub(super) fn keep_awake(&self) -> bool {
        self.any(Standing::keeps_awake)
    }

    /// Whether a run that is to be given back has something that ends by itself.
    pub(super) fn delay_release(&self) -> bool {
        self.any(Standing::delays_release)
    }

    /// Whether a run that is asked to end has a body that may yet finish.
    pub(super) fn delay_end(&self) -> bool {
        self.any(Standing::delays_end)
    }

    /// Whether a run that is replayed has come to something that is not recorded.
    pub(super) fn end_replay(&self) -> bool {
        self.any(Standing::ends_replay)
    }

    /// Whether the one result that is to be recorded may be shown before it is durable.
    pub(super) fn allow_lone_result(&self) -> bool {
        self.count(Standing::Records) <= 1 && !self.any(Standing::forbids_lone_result)
    }
}
