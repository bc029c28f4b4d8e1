//! Undos, on the board: what would take back which step, and what is there to be done on a cancel.
//!
//! Owns: the closures that the function leaves here while it goes on, and which of their steps are
//! done. Never executes one: the function that `ctx::undo` makes does, when the run turns back.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::inbox::NOBODY;
use super::{Board, Draft, Inner};
use crate::ctx::Step;
use crate::limits::ON_CANCEL_MAX;
use crate::model::step_id;
use crate::model::undo::Began;
use crate::store::BoxFuture;
use crate::{Code, Entry, Failure, Json, Record, Retry};

/// Takes back what a step did, from its recorded result.
pub(crate) type UndoBody =
    Box<dyn Fn(&Json, Step) -> BoxFuture<'static, Result<(), Failure>> + Send>;

/// What takes back a step.
pub(crate) struct Undo {
    pub(crate) body: UndoBody,
    pub(crate) retry: Retry,
}

/// The undos of a run, as far as its function has come.
#[derive(Default)]
pub(super) struct Undos {
    /// By the step, without its key.
    steps: HashMap<Arc<str>, Kept>,
    /// The steps that are recorded as undoable, by their places: whether or not the function still
    /// asks for them, they are to be undone.
    recorded: HashMap<u64, String>,
    /// The place of the last record that another run made. What that run did is not undone here.
    inherited: u64,
    /// What a cancel has executed, in the order of asking.
    on_cancel: Vec<Option<Undo>>,
    /// Whether the note that there is something to execute on a cancel is on its way.
    noting: bool,
}

struct Kept {
    undo: Undo,
    /// The place of its step's record and the result, once it is done.
    done: Option<(u64, Json)>,
}

/// One piece of work of a run that turns back.
pub(crate) struct UndoWork {
    /// What is undone, for people.
    pub(crate) of: String,
    /// The step that it is recorded as.
    pub(crate) step: String,
    /// What executes it, with the result that it takes back; `None` where the code has none.
    pub(crate) undo: Option<(Undo, Json)>,
}

impl Undos {
    /// `recorded`: what a run that is claimed has to undo. `inherited`: the place of the last record
    /// that it took along from another run.
    pub(super) fn of(mut recorded: HashMap<u64, String>, inherited: u64) -> Self {
        recorded.retain(|seq, _| *seq > inherited);
        Self { recorded, inherited, ..Self::default() }
    }

    /// Notes that a step is done; says whether there is an undo for it.
    pub(super) fn note(&mut self, step: &str, entry: &Entry, seq: u64) -> bool {
        if self.steps.is_empty() || seq <= self.inherited {
            return false;
        }
        if let Entry::Done(json) = entry
            && let Some(kept) = self.steps.get_mut(step_id::base(step))
        {
            kept.done = Some((seq, json.clone()));
            return true;
        }
        false
    }

    /// Whether a step that ends so can be undone.
    pub(super) fn is_undoable(&self, step: &str, entry: &Entry) -> bool {
        matches!(entry, Entry::Done(_)) && self.steps.contains_key(step_id::base(step))
    }
}

impl Board {
    /// Keeps what takes back a step, from the moment that the step is asked for: it may be recorded
    /// though nobody waits for it any more.
    pub(crate) fn keep_undo(&self, step: &str, undo: Undo) {
        let step = step_id::base(step).into();
        let before = self.lock().undos.steps.insert(step, Kept { undo, done: None });
        // User code, whose drop may come back to this board.
        drop(before);
    }

    /// Keeps what is to be executed when the run is cancelled. A run without a record is ended
    /// without being looked at, so one that has none gets one.
    pub(crate) fn keep_on_cancel(&self, undo: Undo) {
        let now = self.store.clock().now();
        let mut inner = self.lock();
        if inner.undos.on_cancel.len() == ON_CANCEL_MAX {
            drop(inner);
            let detail = format!("more than {ON_CANCEL_MAX} calls of on_cancel");
            return self.trouble(Code::HistoryFull, detail);
        }
        let uncertain = inner.numbers.call_on_cancel();
        inner.undos.on_cancel.push(Some(undo));
        if inner.usage.records == 0 && inner.outbox.is_empty() && !inner.undos.noting {
            inner.undos.noting = true;
            let step = step_id::ON_CANCEL.into();
            let (leaf, entry) = (NOBODY, Entry::Began);
            inner.outbox.push(Draft { leaf, step, entry, try_number: 1, began_at: now });
        }
        drop(inner);
        if uncertain {
            let instead = "Call it before the branches begin.";
            self.refuse_order("ctx.on_cancel()", instead);
        }
    }

    /// Whether a note that no step may begin before is not durable yet.
    pub(crate) fn is_noting(&self) -> bool {
        self.lock().undos.noting
    }

    /// Whether a run that fails, or is cancelled, may have something to undo.
    pub(crate) fn has_undos(&self, cancelled: bool) -> bool {
        let inner = self.lock();
        let undos = &inner.undos;
        !undos.steps.is_empty()
            || !undos.recorded.is_empty()
            || (cancelled && (!undos.on_cancel.is_empty() || inner.past.has_on_cancel()))
    }

    /// What there is to undo: the calls for a cancel, and the places of the steps that are done and
    /// were asked for with an undo, the last one first. That undo may be gone by now.
    pub(crate) fn to_undo(&self, cancelled: bool) -> (usize, Vec<u64>) {
        let inner = self.lock();
        let done = inner.undos.steps.values().filter_map(|kept| kept.done.as_ref());
        let seqs: BTreeSet<u64> =
            done.map(|(seq, _)| *seq).chain(inner.undos.recorded.keys().copied()).collect();
        let seqs = seqs.into_iter().rev().collect();
        // One that the function has not asked for again is told as left undone.
        let on_cancel = inner.undos.on_cancel.len().max(usize::from(inner.past.has_on_cancel()));
        (if cancelled { on_cancel } else { 0 }, seqs)
    }

    /// Turns the board back: the function is gone, and what follows is not its doing. `tail` is what
    /// is recorded from "undo began" on. Gives what is to be done, in order.
    pub(crate) fn turn_back(&self, began: &Began, tail: Vec<Record>) -> Vec<UndoWork> {
        // The bodies of the function were asked to end; those of the undos are not.
        self.cancelled.send_replace(false);
        let mut inner = self.lock();
        let asked = (
            std::mem::take(&mut inner.transactions),
            std::mem::take(&mut inner.key_asks),
            std::mem::take(&mut inner.children),
        );
        inner.trouble = None;
        inner.continue_as = None;
        inner.usage.is_open = true;
        inner.past.turn_back(tail);
        let Undos { steps, mut recorded, mut on_cancel, .. } = std::mem::take(&mut inner.undos);
        // User code, whose drop may come back to this board.
        drop(inner);
        drop(asked);
        let mut work = Vec::with_capacity(began.on_cancel + began.undos.len());
        for number in (1..=began.on_cancel).rev() {
            let kept = on_cancel.get_mut(number - 1).and_then(Option::take);
            let undo = kept.map(|undo| (undo, Json::stored("null")));
            let step = step_id::on_cancel(number);
            work.push(UndoWork { of: step.clone(), step, undo });
        }
        let mut done: HashMap<u64, (Arc<str>, Undo, Json)> = steps
            .into_iter()
            .filter_map(|(step, Kept { undo, done })| {
                let (seq, json) = done?;
                Some((seq, (step, undo, json)))
            })
            .collect();
        for seq in &began.undos {
            let (of, undo) = match done.remove(seq) {
                Some((step, undo, json)) => (step.to_string(), Some((undo, json))),
                None => (recorded.remove(seq).unwrap_or_else(|| format!("record {seq}")), None),
            };
            work.push(UndoWork { step: step_id::undo(&of), of, undo });
        }
        work
    }

    /// Drops what is kept: it may own the run's `Ctx`, and so this board.
    pub(crate) fn drop_undos(&self) {
        let kept = std::mem::take(&mut self.lock().undos);
        drop(kept);
    }
}

impl Inner {
    /// Whether something to execute on a cancel is recorded, and the function has not asked for it again.
    pub(super) fn misses_on_cancel(&self) -> bool {
        self.past.has_on_cancel() && self.undos.on_cancel.is_empty()
    }

    /// Takes notice that the note is durable; no leaf waits for it.
    pub(super) fn noted(&mut self) {
        self.undos.noting = false;
    }
}
