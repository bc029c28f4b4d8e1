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

use super::round::Round;
use super::{Driver, Setting, Stop, Verdict, drop_user_code, finish};
use crate::ctx::{CONTINUE, Left, recordable, undo_all, undo_failed};
use crate::model::undo::{self, Began, Outcome};
use crate::store::{Claimed, End};
use crate::{Code, Failure, Json, Record};

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
        Course::Back(Box::new(Back { began, tail: Vec::new(), marked, patience: None }))
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

    /// The steps that are to be undone, as far as this history tells, by their places.
    pub(super) fn undoable(&self, history: &[Record]) -> HashMap<u64, String> {
        let began = match self {
            Course::Back(back) => back.began.as_ref().map(|(_, began)| began),
            Course::Forward | Course::Undo(_) => None,
        };
        undo::undoable(history, began)
    }

    /// How a run ends that is on its way back and whose function cannot be executed: somebody asked
    /// it to end, so it does, and says what is left.
    pub(super) fn end_unexecuted(
        &self,
        history: &[Record],
        (code, why): (Code, &str),
    ) -> Option<End> {
        let Course::Back(back) = self else { return None };
        let stop = back.marked?;
        let (began, tail) = match &back.began {
            Some((place, began)) => (began.clone(), &history[*place..]),
            None => {
                let mut undos: Vec<u64> = undo::undoable(history, None).into_keys().collect();
                undos.sort_unstable_by(|one, other| other.cmp(one));
                (Began { outcome: outcome_of_stop(stop), on_cancel: 0, undos }, &history[..0])
            }
        };
        let done = undo::done(tail);
        let planned = began.planned(history);
        let all = planned.len();
        let left = planned.into_iter().filter(|undo| !done.contains(&*undo.step));
        let left: Vec<_> = left.map(|undo| Left::new(undo.of, code, why)).collect();
        Some(match left.is_empty() {
            true => end_of(began.outcome),
            false => failed(undo_failed(&began.outcome, left, all)),
        })
    }
}

/// Whether it is recorded that a run has turned back, and not how as far as this build can tell: it must
/// not go forward.
pub(super) fn is_unreadable(history: &[Record]) -> bool {
    undo::Undoing::of(history).is_some_and(|undoing| undoing.unreadable)
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
    /// Why an undo is missing.
    missing: (Code, String),
}

impl Driver {
    /// Polls and delivers until the attempt has an end, with a turn back on the way if there is
    /// something to undo.
    pub(super) async fn go(mut self: Box<Self>) -> super::Drove {
        let mut asked_to_end = None;
        loop {
            let verdict = match asked_to_end.take() {
                Some(stop) => Verdict::Stopped(stop),
                None => self.advance().await,
            };
            if self.goes_on_with_replay(&verdict) {
                continue;
            }
            let Err(verdict) = self.turn_back(verdict).await else { continue };
            match self.finish(verdict).await {
                Ok(drove) => return drove,
                Err(driver) => {
                    self = driver;
                    asked_to_end = Some(Stop::Cancel);
                }
            }
        }
    }

    /// Goes on with a replay that was stopped on its way: what the function has not asked for again
    /// can be undone only once it has. Once something new began, the replay is over.
    fn goes_on_with_replay(&mut self, verdict: &Verdict) -> bool {
        let Verdict::Stopped(stop @ (Stop::Cancel | Stop::Deadline)) = *verdict else {
            return false;
        };
        let replays = self.course.is_forward() && self.board.is_replaying();
        if !replays || self.function.is_none() {
            return false;
        }
        let back = Back { began: None, tail: Vec::new(), marked: Some(stop), patience: None };
        self.course = Course::Back(Box::new(back));
        self.deadline_at = None;
        self.alarm = None;
        self.stopping = None;
        self.board.set_stopping(None);
        self.board.wakes.want_function();
        true
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
        let Turn { began, tail, missing } = self.plan(verdict)?;
        let outcome = began.outcome.clone();
        let work = self.board.turn_back(&began, tail);
        tracing::info!(run = %self.lease.run, undos = work.len(), "the run turns back");
        let function = undo_all(Arc::clone(&self.board), began, work, missing);
        self.function = Some(Box::pin(tokio::task::coop::unconstrained(function)));
        self.course = Course::Undo(outcome);
        self.deadline_at = None;
        self.alarm = None;
        self.hearing = None;
        self.to_start.clear();
        // A worker that ends lets the run go; whatever else was asked for is being done.
        self.stopping = self.stopping.take().filter(|stopping| stopping.stop == Stop::Release);
        self.board.set_stopping(self.stopping.as_ref().map(|stopping| stopping.stop));
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
        self.let_starts_end().await?;
        self.free_keys().await;
        self.let_transactions_end().await.map_err(Verdict::of_refused)
    }

    /// What is to be undone; an error is the end of a run that has nothing to undo.
    fn plan(&mut self, verdict: Verdict) -> Result<Turn, Verdict> {
        let back = match std::mem::replace(&mut self.course, Course::Forward) {
            Course::Back(back) => Some(back),
            Course::Forward | Course::Undo(_) => None,
        };
        let missing = match &verdict {
            Verdict::Stuck(code, detail) => (*code, detail.clone()),
            _ => (Code::UndoMissing, Code::UndoMissing.advice().to_owned()),
        };
        if back.is_some() || matches!(verdict, Verdict::Returned(_)) {
            let leftover = self.board.leftover(&self.setting.build).unwrap_or_default();
            self.unasked = leftover.other_builds;
        }
        let (outcome, verdict) = match (back, verdict) {
            (Some(back), verdict) => match (back.began, back.marked) {
                (Some((_, began)), _) => return Ok(Turn { began, tail: back.tail, missing }),
                (None, Some(stop)) => (outcome_of_stop(stop), Verdict::Stopped(stop)),
                (None, None) => (Outcome::Cancelled, verdict),
            },
            (None, Verdict::Returned(Err(failure))) => {
                (Outcome::Failed { failure: failure.clone() }, Verdict::Returned(Err(failure)))
            }
            (None, Verdict::Stopped(stop)) => (outcome_of_stop(stop), Verdict::Stopped(stop)),
            (None, verdict) => (Outcome::Cancelled, verdict),
        };
        let began = self.begin(outcome).ok_or(verdict)?;
        Ok(Turn { began, tail: Vec::new(), missing })
    }

    /// What "undo began" says of a run that ends so, unless there is nothing to undo.
    fn begin(&self, outcome: Outcome) -> Option<Began> {
        let (on_cancel, undos) = self.board.to_undo(outcome == Outcome::Cancelled);
        if on_cancel == 0 && undos.is_empty() {
            return None;
        }
        let mut began = Began { outcome, on_cancel, undos };
        if recordable(&began).is_err()
            && let Outcome::Failed { failure } = &mut began.outcome
        {
            // Its details alone may be as large as a record.
            *failure = failure.clone().without_details();
        }
        Some(began)
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
        if self.board.may_ask_more() {
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

    /// Whether a replay waits for something that is not from its `Ctx`, for a time.
    pub(super) fn is_patient(&self) -> bool {
        matches!(&self.course, Course::Back(back) if back.patience.is_some())
    }

    /// Looks whether a replay has waited long enough for something that is not from its `Ctx`.
    pub(super) fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let Course::Back(back) = &mut self.course else { return Poll::Pending };
        let Some(patience) = &mut back.patience else { return Poll::Pending };
        patience.as_mut().poll(cx).map(|()| self.rebuilt())
    }
}
