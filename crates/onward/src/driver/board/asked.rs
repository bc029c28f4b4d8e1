//! The function's side of the board: what `ctx` futures ask, are told and report.
//!
//! Owns: a leaf from its first poll to its drop, and what is refused as misuse.
//! Never decides whose turn it is.

use std::sync::Arc;
use std::task::Waker;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{
    Board, Child, Draft, Inner, Leaf, LeafId, LeafKind, Phase, Standing, Then, Told, Transaction,
    Trouble,
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
        inner.numbers.poll();
        let mut known = inner.past.take(step).unwrap_or_default();
        let mut leaf = Leaf::new(step, kind, waker);
        leaf.try_number = known.tries + 1;
        let id = match known.last.take() {
            Some(record) => {
                let seq = record.seq;
                inner.undos.note(&record.step, &record.entry, seq);
                let id = inner.leaves.enter(leaf.with_record(record));
                inner.ready.insert(seq, id);
                id
            }
            None => {
                let id = inner.leaves.enter(leaf);
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
        inner.numbers.poll();
        let full = inner.is_full();
        let Some(leaf) = inner.leaves.get_mut(id) else { return Told::Wait };
        if !leaf.waker.will_wake(waker) {
            leaf.waker.clone_from(waker);
        }
        match leaf.phase() {
            Phase::Recorded { .. } if inner.offer == Some(id) => inner.give(id),
            Phase::Withdrawn { .. } => {
                inner.offer_again(id);
                Told::Wait
            }
            // It would be dropped as soon as its grace time is over, or keep a run that is to be given back.
            Phase::Allowed if leaf.is_held_by(inner.stopping) => Told::Wait,
            Phase::Allowed if full => {
                inner.leaves.remove(id);
                // The function goes on with this failure, as with a result.
                inner.numbers.deliver();
                Told::Full
            }
            Phase::Allowed => {
                inner.leaves.set(id, Phase::Active);
                Told::Begin
            }
            Phase::Active => match leaf.key.take() {
                Some(told) => Told::Key(told),
                None => leaf.failed.take().map_or(Told::Proceed, Told::Failed),
            },
            Phase::Asked
            | Phase::Recorded { .. }
            | Phase::Pausing(_)
            | Phase::Due
            | Phase::Awaiting
            | Phase::Aside
            | Phase::Recording
            | Phase::RecordingTry(_) => Told::Wait,
        }
    }

    /// Hands something to the driver to record. `then` is where the leaf goes meanwhile.
    pub(crate) fn report(&self, draft: Draft, then: Then) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(leaf) = inner.leaves.get_mut(draft.leaf) else { return };
        let phase = match then {
            Then::Record => Phase::Recording,
            Then::Pause(until) => {
                leaf.try_number = draft.try_number + 1;
                leaf.is_begun = false;
                Phase::RecordingTry(until)
            }
        };
        inner.leaves.set(draft.leaf, phase);
        inner.outbox.push(draft);
    }

    /// Hands a transaction to the driver to execute. The leaf counts as executing meanwhile.
    pub(crate) fn transact(&self, transaction: Transaction) {
        self.lock().transactions.push(transaction);
    }

    /// Hands a child to the driver to start. The leaf counts as executing meanwhile. One whose end has come
    /// was started before, and may have been pruned since.
    pub(crate) fn start_child(&self, child: Child) {
        let mut inner = self.lock();
        let step = child.run.parent.as_ref().map(|parent| parent.step.as_str());
        if step.is_some_and(|step| inner.inbox.has_new(step)) {
            drop(inner);
            return self.child_started(child.leaf, child.run.id);
        }
        inner.children.push(child);
    }

    /// Lets a leaf that was told to begin wait for a time first; it is told again then.
    pub(crate) fn pause(&self, id: LeafId, until: Timestamp) {
        let mut inner = self.lock();
        if inner.leaves.set(id, Phase::Pausing(until)) {
            inner.alarms.insert((until, id));
        }
    }

    /// Whether the run is asked to stop, so that nothing more may begin.
    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping.is_some()
    }

    /// Lets a leaf that was told to begin wait for that again: the run is asked to stop.
    pub(crate) fn stand_back(&self, id: LeafId) {
        let mut inner = self.lock();
        if inner.leaves.set(id, Phase::Asked) {
            inner.asked.push(id);
        }
    }

    /// Takes out a leaf whose future was dropped.
    pub(crate) fn forget(&self, id: LeafId) {
        let mut inner = self.lock();
        let Some(leaf) = inner.leaves.remove(id) else { return };
        match *leaf.phase() {
            Phase::Asked => inner.asked.retain(|asked| *asked != id),
            Phase::Pausing(until) => drop(inner.alarms.remove(&(until, id))),
            Phase::Due => inner.inbox.forget_limit(id),
            Phase::Recorded { seq, .. } => drop(inner.ready.remove(&seq)),
            Phase::Allowed
            | Phase::Active
            | Phase::Awaiting
            | Phase::Aside
            | Phase::Recording
            | Phase::RecordingTry(_)
            | Phase::Withdrawn { .. } => {}
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
    /// Gives a leaf the result that it is offered.
    fn give(&mut self, id: LeafId) -> Told {
        self.offer = None;
        match self.leaves.remove(id).map(|leaf| leaf.into_phase()) {
            Some(Phase::Recorded { seq, at, record }) => {
                self.given(seq, at);
                Told::Take(record)
            }
            _ => Told::Wait,
        }
    }

    /// Lets a leaf that stood back wait for its turn again.
    fn offer_again(&mut self, id: LeafId) {
        let ready = &mut self.ready;
        self.leaves.change(id, |phase| match phase {
            Phase::Withdrawn { seq, at, record } => {
                ready.insert(seq, id);
                Phase::Recorded { seq, at, record }
            }
            other => other,
        });
    }

    /// Whether there is no room for what a leaf that begins would record.
    pub(super) fn is_full(&self) -> bool {
        self.usage.is_full(self.leaves.count(Standing::Executes))
    }
}
