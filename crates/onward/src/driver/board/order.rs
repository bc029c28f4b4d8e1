//! The driver's side of the board: whose turn it is, who may begin, what is to be recorded.
//!
//! Owns: the order of delivery and leave to begin. Never polls; the driver does.

use std::sync::Arc;
use std::task::Waker;

use tokio::task::AbortHandle;

use super::inbox::NOBODY;
use super::{
    Board, Child, Draft, Inner, LeafId, LeafKind, Phase, Placed, Standing, Transaction, Trouble,
    Usage,
};
use crate::driver::Stop;
use crate::driver::past::Leftover;
use crate::limits::{HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, HISTORY_WARN_PERCENT};
use crate::{Json, Record, RecordKind, RunId, Timestamp, Waits};

impl Board {
    /// Makes the next recorded result visible, if somebody waits for one. While a lower number is
    /// open none is next: what has that number may turn out to be recorded before it.
    pub(crate) fn offer_next(&self) -> bool {
        let mut inner = self.lock();
        let Some((seq, id)) = inner.ready.pop_first() else { return false };
        if inner.places.is_open_below(seq) {
            inner.ready.insert(seq, id);
            return false;
        }
        inner.offer = Some(id);
        let waker = inner.leaves.get(id).map(|leaf| leaf.waker.clone());
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Withdraws a result that nobody took in the poll it was offered for.
    pub(crate) fn withdraw(&self) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(id) = inner.offer.take() else { return };
        let Some(leaf) = inner.leaves.get(id) else { return };
        if leaf.kind.heeds_signals() {
            let name = Arc::clone(&leaf.step);
            inner.leaves.set(id, Phase::Aside);
            inner.leave_inbox(&name, id);
        } else {
            inner.leaves.change(id, |phase| match phase {
                Phase::Recorded { seq, at, record } => Phase::Withdrawn { seq, at, record },
                other => other,
            });
        }
    }

    /// Whether unrecorded leaves wait for leave to begin.
    pub(crate) fn is_asked(&self) -> bool {
        !self.lock().asked.is_empty()
    }

    /// Lets every unrecorded leaf begin.
    pub(crate) fn allow_all(&self) {
        let mut inner = self.lock();
        inner.went_on = true;
        let mut asked = std::mem::take(&mut inner.asked);
        let wakers: Vec<_> = asked.drain(..).filter_map(|id| inner.allow(id)).collect();
        // Its room is for the next ones.
        inner.asked = asked;
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the leaves whose bodies woke, so that whatever holds them polls them.
    pub(crate) fn wake_leaves(&self, leaves: &[LeafId]) {
        let inner = self.lock();
        let woken = leaves.iter().filter_map(|id| inner.leaves.get(*id));
        let wakers: Vec<_> = woken.map(|leaf| leaf.waker.clone()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Lets the leaves go on whose time has come.
    pub(crate) fn ring(&self, now: Timestamp) {
        let mut inner = self.lock();
        let mut wakers = Vec::new();
        while inner.alarms.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, id)) = inner.alarms.pop_first() else { break };
            match inner.leaves.get_mut(id) {
                // A further try begins as a first one does: when the lease is known to hold.
                Some(leaf) if leaf.kind == LeafKind::Step => {
                    leaf.waits = None;
                    inner.leaves.set(id, Phase::Asked);
                    inner.asked.push(id);
                }
                _ => wakers.extend(inner.allow(id)),
            }
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
            inner.usage.add(draft.bytes(), self.run);
        }
        drafts
    }

    /// The transactions that have come in to be executed.
    pub(crate) fn take_transactions(&self) -> Vec<Transaction> {
        std::mem::take(&mut self.lock().transactions)
    }

    /// Keeps the task of a leaf's transaction, so that it ends with the leaf.
    pub(crate) fn transacts(&self, id: LeafId, task: AbortHandle) {
        let mut inner = self.lock();
        if let Some(leaf) = inner.leaves.get_mut(id) {
            leaf.task = Some(task);
        } else {
            drop(inner);
            task.abort();
        }
    }

    /// The one result that is to be recorded, if nothing else is going on: it may be shown to the
    /// function before it is durable.
    pub(crate) fn take_lone_result(&self) -> Option<Draft> {
        let mut inner = self.lock();
        let is_lone = inner.leaves.allow_lone_result()
            && !inner.places.is_any_open()
            && matches!(&inner.outbox[..], [draft] if draft.entry.kind().is_final());
        let draft = inner.outbox.pop_if(|_| is_lone)?;
        inner.usage.add(draft.bytes(), self.run);
        Some(draft)
    }

    /// Lets a leaf have the result that it reported, now that it has its place in the order.
    pub(crate) fn recorded(&self, placed: Placed) {
        let Placed { leaf: id, seq, at, kind } = placed;
        let mut inner = self.lock();
        inner.places.close(seq);
        match kind {
            RecordKind::Arrived => return inner.arrived(seq),
            RecordKind::Began if id == NOBODY => return inner.noted(),
            _ => {}
        }
        let Some(leaf) = inner.leaves.get_mut(id) else { return };
        if kind.is_final() {
            inner.leaves.set(id, Phase::Recorded { seq, at, record: None });
            inner.ready.insert(seq, id);
        } else if kind == RecordKind::Began {
            leaf.is_begun = true;
            let waker = inner.allow(id);
            drop(inner);
            waker.into_iter().for_each(Waker::wake);
        } else if let Phase::RecordingTry(until) = *leaf.phase() {
            // Only now: if the next try began before, a crash would leave a try that nobody counts.
            inner.leaves.set(id, Phase::Pausing(until));
            inner.alarms.insert((until, id));
        }
    }

    /// How many bodies execute.
    pub(crate) fn active(&self) -> usize {
        self.lock().leaves.count(Standing::Executes)
    }

    /// Whether the run goes on without the clock or the world outside.
    pub(crate) fn is_awake(&self) -> bool {
        self.lock().leaves.keep_awake()
    }

    /// Whether a run that is to be given back has something that ends by itself, after which it may be
    /// complete.
    pub(crate) fn delays_release(&self) -> bool {
        self.lock().leaves.delay_release()
    }

    /// Whether a run that is asked to end has a body that may yet finish.
    pub(crate) fn delays_end(&self) -> bool {
        self.lock().leaves.delay_end()
    }

    /// Whether nothing began in this execution that is not recorded: the function is being replayed.
    pub(crate) fn is_replaying(&self) -> bool {
        !self.lock().went_on
    }

    /// Whether a function that is replayed may yet ask for what it did before: it wants to begin
    /// nothing new, and has not asked for all there is, or waits for something that is not from its
    /// `Ctx`.
    pub(crate) fn may_ask_more(&self) -> bool {
        let inner = self.lock();
        let waits_elsewhere = inner.leaves.is_empty();
        !inner.leaves.end_replay()
            && (inner.has_unasked() || inner.misses_on_cancel() || waits_elsewhere)
    }

    /// Tells the leaves that the run is asked to stop, or that it is not any more.
    pub(crate) fn set_stopping(&self, stop: Option<Stop>) {
        self.lock().stopping = stop;
    }

    /// Whether the run goes on without the clock: a body executes, or the function waits for
    /// something that is not from its `Ctx`.
    pub(crate) fn is_busy(&self) -> bool {
        let inner = self.lock();
        inner.leaves.count(Standing::Executes) > 0 || inner.leaves.is_empty()
    }

    /// The children that are to be started.
    pub(crate) fn take_children(&self) -> Vec<Child> {
        std::mem::take(&mut self.lock().children)
    }

    /// What a run waits for that rests: a signal before a time.
    pub(crate) fn waits_for(&self) -> Option<Waits> {
        let inner = self.lock();
        let first = inner.awaiting.first().and_then(|id| inner.leaves.get(*id));
        let signal = first.and_then(|leaf| leaf.waits.clone());
        drop(inner);
        signal.or_else(|| self.next_alarm().map(|(_, waits)| waits))
    }

    /// The nearest time that a leaf waits for, and what it is.
    pub(crate) fn next_alarm(&self) -> Option<(Timestamp, Waits)> {
        let inner = self.lock();
        let (until, id) = inner.alarms.first()?;
        let leaf = inner.leaves.get(*id)?;
        let step = leaf.step.to_string();
        let waits = match leaf.kind {
            LeafKind::Timer => Waits::Timer { step },
            _ => match &leaf.waits {
                Some(key @ Waits::Key { .. }) => key.clone(),
                _ => Waits::Retry { step, try_number: leaf.try_number },
            },
        };
        Some((*until, waits))
    }

    /// What is recorded and nobody has asked for, if anything.
    pub(crate) fn leftover(&self, build: &str) -> Option<Leftover> {
        let inner = self.lock();
        let mut leftover = inner.past.leftover(build);
        for name in inner.inbox.unasked() {
            leftover.get_or_insert_default().same_build.push(name.to_owned());
        }
        leftover
    }

    /// Whether records are left that nobody has asked for. Of signals, which belong to no wait, only
    /// those count that another build took: they were waited for, further on.
    pub(crate) fn has_unasked(&self) -> bool {
        self.lock().has_unasked()
    }

    /// The steps that want to begin, for people.
    pub(crate) fn asked_steps(&self) -> Vec<String> {
        let inner = self.lock();
        let asked = inner.asked.iter().filter_map(|id| inner.leaves.get(*id));
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

    /// Tells the bodies that the run is asked to end, those too that ask for it only later.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// From here on every use of the run's `Ctx` is refused.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
    }
}

impl Inner {
    fn has_unasked(&self) -> bool {
        let elsewhere = |record: &Record| self.past.is_of_another_build(record);
        !self.past.is_empty() || self.inbox.kept().any(elsewhere)
    }

    /// Lets a leaf begin at its next poll; returns what wakes it.
    pub(super) fn allow(&mut self, id: LeafId) -> Option<Waker> {
        self.leaves.set(id, Phase::Allowed);
        self.leaves.get(id).map(|leaf| leaf.waker.clone())
    }
}

impl Usage {
    pub(super) fn is_full(&self, active: usize) -> bool {
        let full = self.records + active >= HISTORY_RECORDS_MAX || self.bytes >= HISTORY_BYTES_MAX;
        full && !self.is_open
    }

    pub(super) fn add(&mut self, bytes: usize, run: RunId) {
        self.records += 1;
        self.bytes += bytes;
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
