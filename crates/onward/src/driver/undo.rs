//! Turning back: a run that failed or was asked to end undoes what it did.
//!
//! Owns: when a run turns back, and the way there after a crash: its function is replayed, so that
//! it leaves its undos once more, and nothing begins meanwhile. Never executes an undo itself: the
//! function of `ctx::undo` does, polled as the workflow's was.
//!
//! What is recorded in the step `$undo` fixes how the run ends. From then on neither a cancel nor a
//! deadline changes anything; only a worker that ends, or a lost lease, stops the undos, and whoever
//! claims the run next goes on with them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::past::Leftover;
use super::round::Round;
use super::{Driver, Setting, Stop, Verdict, drop_user_code, finish};
use crate::ctx::{CONTINUE, Left, undo_all, undo_failed};
use crate::model::step_id;
use crate::model::undo::{self, Began, Outcome};
use crate::store::{Claimed, End};
use crate::{Code, Entry, Failure, Json, Record};

/// Which way a driver takes its run.
pub(super) enum Course {
    /// The function goes on.
    Forward,
    /// The function is replayed, to have its undos again; nothing begins.
    Back(Box<Back>),
    /// The undos are executed; then the run ends so.
    Undo(Outcome),
}

/// A run that is on its way back.
pub(super) struct Back {
    /// What is recorded of its turning back, if it is, and the place of that in the history.
    began: Option<(usize, Began)>,
    /// The records from there on.
    tail: Vec<Record>,
    /// The steps of the places that are to be undone.
    names: HashMap<u64, String>,
    /// Why it ends, if somebody asked it to or its time is over: then it ends, come what may.
    marked: Option<Stop>,
    /// Until when something is waited for that is not from the run's `Ctx`.
    patience: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Course {
    /// The way of a claimed run.
    pub(super) fn of(setting: &Setting, claimed: &Claimed) -> Self {
        let marked = marked(setting, claimed);
        let began = undo::began(&claimed.history);
        if began.is_none() && marked.is_none() {
            return Course::Forward;
        }
        let planned = began.iter().flat_map(|(_, began)| &began.undos);
        let names = planned.filter_map(|seq| {
            let place = claimed.history.binary_search_by_key(seq, |record| record.seq).ok()?;
            Some((*seq, step_id::base(&claimed.history[place].step).to_owned()))
        });
        let names = names.collect();
        let (tail, patience) = (Vec::new(), None);
        Course::Back(Box::new(Back { began, tail, names, marked, patience }))
    }

    pub(super) fn is_forward(&self) -> bool {
        matches!(self, Course::Forward)
    }

    /// Takes what is recorded of the undo out of a history: it is not for the function.
    pub(super) fn split(&mut self, history: &mut Vec<Record>) {
        if let Course::Back(back) = self
            && let Some((place, _)) = &back.began
        {
            back.tail = history.split_off(*place);
        }
    }

    /// How a run ends that is on its way back and whose input cannot be read: somebody asked it to
    /// end, so it does, and says what is left.
    pub(super) fn end_unread(&self, history: &[Record]) -> Option<End> {
        let Course::Back(back) = self else { return None };
        let end = finish::end_of_stop(back.marked?);
        let Some((place, began)) = &back.began else { return Some(end) };
        let tail = &history[*place..];
        let mut left = Vec::new();
        let calls = (1..=began.on_cancel).rev().map(step_id::on_cancel);
        let undos = began.undos.iter().map(|seq| back.name_of(*seq));
        for (of, is_call) in calls.map(|of| (of, true)).chain(undos.map(|of| (of, false))) {
            let step = if is_call { of.clone() } else { step_id::undo(&of) };
            let done = |record: &Record| matches!(record.entry, Entry::Done(_));
            if !tail.iter().any(|record| record.step == step && done(record)) {
                left.push(Left::new(
                    of,
                    Code::TypeMismatch,
                    "the run's input does not fit its type",
                ));
            }
        }
        let all = began.on_cancel + began.undos.len();
        Some(match left.is_empty() {
            true => end_of(began.outcome.clone()),
            false => failed(undo_failed(&began.outcome, left, all)),
        })
    }
}

impl Back {
    fn name_of(&self, seq: u64) -> String {
        self.names.get(&seq).cloned().unwrap_or_else(|| format!("record {seq}"))
    }
}

/// Why a claimed run is to end, if it is.
pub(super) fn marked(setting: &Setting, claimed: &Claimed) -> Option<Stop> {
    if claimed.run.cancel_at.is_some() {
        return Some(Stop::Cancel);
    }
    // The store's own time of the first claim counts, where this process' reading of it lags.
    let now =
        setting.store.clock().now().max(claimed.run.started_at.unwrap_or(claimed.run.created_at));
    let late = claimed.run.deadline_at.is_some_and(|deadline| deadline <= now);
    late.then_some(Stop::Deadline)
}

fn end_of(outcome: Outcome) -> End {
    match outcome {
        Outcome::Failed { failure } => failed(failure),
        Outcome::Cancelled => End::Cancelled,
    }
}

/// A run that has turned back is not retried, so no step is named whose failure that would void.
fn failed(failure: Failure) -> End {
    End::Failed { failure, step: None }
}

fn outcome_of_stop(stop: Stop) -> Outcome {
    match finish::end_of_stop(stop) {
        End::Failed { failure, .. } => Outcome::Failed { failure },
        _ => Outcome::Cancelled,
    }
}

/// How a run turns back.
struct Turn {
    began: Began,
    tail: Vec<Record>,
    names: Option<Box<Back>>,
    /// What may have had undos that the function, which could not be replayed, did not leave.
    left: Vec<Left>,
    /// Why an undo is missing.
    missing: (Code, String),
}

impl Driver {
    /// Polls and delivers until the attempt has an end, with a turn back on the way if there is
    /// something to undo.
    pub(super) async fn go(mut self) -> super::Drove {
        loop {
            let verdict = self.advance().await;
            if let Err(verdict) = self.turn_back(verdict).await {
                return self.finish(verdict).await;
            }
        }
    }

    /// What the worker asks for, as far as it matters on this course.
    pub(super) fn asked_to_stop(&self) -> Option<Stop> {
        match self.course {
            Course::Forward => self.control.asked(),
            Course::Back(_) | Course::Undo(_) => self.control.asked_to_leave(),
        }
    }

    /// Turns back, if this is what the verdict means; otherwise it is given back.
    async fn turn_back(&mut self, verdict: Verdict) -> Result<(), Verdict> {
        // Whatever a function says that is replayed, it must have asked for what it did.
        let verdict = match (&self.course, verdict) {
            (Course::Back(_), Verdict::Returned(_)) => self.rebuilt(),
            (_, verdict) => verdict,
        };
        if !self.may_turn_back(&verdict) {
            return Err(verdict);
        }
        drop_user_code(&mut self.function);
        self.let_writes_end().await?;
        // What is not sent yet takes its place before "undo began".
        self.send();
        let Turn { began, tail, names, left, missing } = self.plan(verdict)?;
        let outcome = began.outcome.clone();
        let name_of = |seq| names.as_ref().map_or_else(String::new, |back| back.name_of(seq));
        let work = self.board.turn_back(&began, tail, name_of);
        tracing::info!(run = %self.lease.run, undos = work.len(), "the run turns back");
        let function = undo_all(Arc::clone(&self.board), began, work, left, missing);
        self.function = Some(Box::pin(tokio::task::coop::unconstrained(function)));
        self.course = Course::Undo(outcome);
        self.deadline_at = None;
        self.alarm = None;
        self.hearing = None;
        self.to_start.clear();
        // A worker that ends lets the run go; whatever else was asked for is being done.
        self.stopping = self.stopping.take().filter(|stopping| stopping.stop == Stop::Release);
        self.board.wakes.want_function();
        Ok(())
    }

    /// Whether a verdict may mean that the run turns back.
    fn may_turn_back(&self, verdict: &Verdict) -> bool {
        match (&self.course, verdict) {
            (Course::Forward, Verdict::Returned(Err(failure))) => {
                !failure.is(CONTINUE) && self.board.has_undos(false)
            }
            (Course::Forward, Verdict::Stopped(Stop::Cancel)) => self.board.has_undos(true),
            (Course::Forward, Verdict::Stopped(Stop::Deadline)) => self.board.has_undos(false),
            (Course::Back(_), Verdict::Rebuilt) => true,
            (Course::Back(back), Verdict::Stuck(..)) => back.marked.is_some(),
            _ => false,
        }
    }

    /// Waits for what is on its way, so that all that the function did is known.
    async fn let_writes_end(&mut self) -> Result<(), Verdict> {
        if let Some(in_flight) = self.in_flight.take() {
            let placed = in_flight.answered().await.map_err(Verdict::of_refused)?;
            // A number that stayed open would hold up whatever comes after it.
            placed.into_iter().for_each(|placed| self.board.recorded(placed));
        }
        self.free_keys().await;
        self.let_transactions_end().await.map_err(Verdict::of_refused)
    }

    /// What is to be undone; an error is the end of a run that has nothing to undo.
    fn plan(&mut self, verdict: Verdict) -> Result<Turn, Verdict> {
        let back = match std::mem::replace(&mut self.course, Course::Forward) {
            Course::Back(back) => Some(back),
            Course::Forward | Course::Undo(_) => None,
        };
        let Leftover { same_build, other_builds, .. } =
            self.board.leftover(&self.setting.build).unwrap_or_default();
        if let Some(mut back) = back {
            self.unasked = other_builds;
            let missing = match &verdict {
                Verdict::Stuck(code, detail) => (*code, detail.clone()),
                _ => (Code::UndoMissing, Code::UndoMissing.advice().to_owned()),
            };
            if let Some((_, began)) = back.began.take() {
                let tail = std::mem::take(&mut back.tail);
                return Ok(Turn { began, tail, names: Some(back), left: Vec::new(), missing });
            }
            let unasked = same_build.into_iter().filter(|step| !step.starts_with('$'));
            let left = unasked.map(|step| Left::new(step, missing.0, missing.1.clone())).collect();
            let stop = back.marked.unwrap_or(Stop::Cancel);
            return self.fresh_plan(outcome_of_stop(stop), left).ok_or(Verdict::Stopped(stop));
        }
        let outcome = match &verdict {
            Verdict::Returned(Err(failure)) => {
                self.unasked = other_builds;
                Outcome::Failed { failure: failure.clone() }
            }
            Verdict::Stopped(stop) => outcome_of_stop(*stop),
            _ => Outcome::Cancelled,
        };
        self.fresh_plan(outcome, Vec::new()).ok_or(verdict)
    }

    fn fresh_plan(&self, outcome: Outcome, left: Vec<Left>) -> Option<Turn> {
        let cancelled = outcome == Outcome::Cancelled;
        let (on_cancel, undos) = self.board.to_undo(cancelled);
        if on_cancel == 0 && undos.is_empty() {
            return None;
        }
        let mut began = Began { outcome, on_cancel, undos };
        if Json::of(&began).is_err()
            && let Outcome::Failed { failure } = &mut began.outcome
        {
            // Its details alone may be as large as a record.
            *failure = failure.clone().without_details();
        }
        let missing = (Code::UndoMissing, Code::UndoMissing.advice().to_owned());
        Some(Turn { began, tail: Vec::new(), names: None, left, missing })
    }

    /// How a run ends whose undos were all tried.
    pub(super) fn end_of_undo(&self, returned: &Result<Json, Failure>) -> Option<End> {
        let Course::Undo(outcome) = &self.course else { return None };
        Some(match returned {
            Ok(_) => end_of(outcome.clone()),
            Err(failure) => failed(failure.clone()),
        })
    }

    /// Whether the function, which is replayed, has come as far as its records lead: it wants to begin
    /// something, or asked for all there is. `None` where it waits for something that is not from its
    /// `Ctx` and may yet ask for more.
    pub(super) fn is_rebuilt(&mut self) -> Option<Round> {
        if self.board.has_unasked() && !self.board.is_asked() {
            if let Course::Back(back) = &mut self.course {
                let grace = self.setting.cancel_grace;
                back.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(grace)));
            }
            return None;
        }
        Some(Round::Over(self.rebuilt()))
    }

    fn rebuilt(&mut self) -> Verdict {
        let leftover = self.board.leftover(&self.setting.build).unwrap_or_default();
        self.judge(&leftover).unwrap_or(Verdict::Rebuilt)
    }

    /// Looks whether a replay has waited long enough for something that is not from its `Ctx`.
    pub(super) fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let Course::Back(back) = &mut self.course else { return Poll::Pending };
        let Some(patience) = &mut back.patience else { return Poll::Pending };
        patience.as_mut().poll(cx).map(|()| self.rebuilt())
    }
}
