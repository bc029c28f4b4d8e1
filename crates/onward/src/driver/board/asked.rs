//! The function's side of the board: what `ctx` futures ask, are told and report.
//!
//! Owns: a leaf from its first poll to its drop, step numbers, and what is refused as misuse.
//! Never decides whose turn it is.

use std::sync::Arc;
use std::task::Waker;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{
    Board, Child, Draft, Inner, Leaf, LeafId, LeafKind, Phase, Then, Told, Transaction, Trouble,
};
use crate::driver::past::PastStep;
use crate::driver::wake::Here;
use crate::{Code, Failure, Json, Timestamp};

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
        let mut leaf = Leaf { try_number: known.tries + 1, ..Leaf::new(step, kind, waker) };
        let id = match known.last.take() {
            Some(record) => {
                let seq = record.seq;
                inner.undos.note(&record.step, &record.entry, seq);
                leaf.phase = Phase::Recorded { seq, at: record.at, record: Some(record) };
                let id = inner.enter(leaf);
                inner.ready.insert(seq, id);
                id
            }
            None => {
                let id = inner.enter(leaf);
                inner.asked.push(id);
                id
            }
        };
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
            Phase::Recorded { seq, at, record } if inner.offer == Some(id) => {
                inner.offer = None;
                inner.given(seq, at);
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
                if let Some(told) = leaf.key.take() {
                    return Told::Key(told);
                }
                return leaf.failed.take().map_or(Told::Proceed, Told::Failed);
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

    /// Hands a transaction to the driver to execute. The leaf counts as executing meanwhile.
    pub(crate) fn transact(&self, transaction: Transaction) {
        self.lock().transactions.push(transaction);
    }

    /// Hands a child to the driver to start. The leaf counts as executing meanwhile.
    pub(crate) fn start_child(&self, child: Child) {
        self.lock().children.push(child);
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
            Phase::Asked => inner.asked.retain(|asked| *asked != id),
            Phase::Active => inner.active -= 1,
            Phase::Pausing(until) => drop(inner.alarms.remove(&(until, id))),
            Phase::Recorded { seq, .. } => drop(inner.ready.remove(&seq)),
            _ => {}
        }
        if leaf.kind.heeds_signals() {
            inner.leave_inbox(&leaf.step, id);
        }
        if inner.offer == Some(id) {
            inner.offer = None;
        }
        // One that has its number may be committed already, and is waited for.
        let task = leaf.task.filter(|_| !inner.places.has_transaction(id));
        // A waker may own a future of the user's, whose drop may come back to this board.
        drop(inner);
        drop(leaf.waker);
        task.iter().for_each(AbortHandle::abort);
    }

    /// Notes the step whose failure was delivered last, or that a success came after it: then
    /// the function went on, and that failure is not what ends the run.
    pub(crate) fn failed(&self, step: Option<&Arc<str>>) {
        self.lock().last_failed = step.map(Arc::clone);
    }

    /// Notes that the run cannot go on under this build.
    pub(crate) fn trouble(&self, code: Code, detail: String) {
        self.lock().trouble.get_or_insert(Trouble { code, detail });
    }
}

impl Inner {
    /// Enters a leaf.
    pub(super) fn enter(&mut self, leaf: Leaf) -> LeafId {
        let id = self.leaf_next;
        self.leaf_next += 1;
        self.leaves.insert(id, Box::new(leaf));
        id
    }
}
