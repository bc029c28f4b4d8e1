//! One round: poll the function until it rests, deliver, let steps begin.
//!
//! Owns: the order of a round, which is the promise of replay. Never waits and never writes.

use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};
use std::time::Instant;

use super::board::Trouble;
use super::past::{Leftover, listed};
use super::undo::Course;
use super::wake::Here;
use super::{Driver, Stop, Verdict, drop_user_code};
use crate::limits::{BLOCKING_POLL_WARN, RESTLESS_POLLS_MAX};
use crate::{Code, Failure, Json};

/// How a round ended.
pub(super) enum Round {
    /// Nothing can be done until something happens.
    Rest,
    /// There is more to do, after others on this thread have had their turn.
    Yield,
    /// The attempt has an end.
    Over(Verdict),
}

impl Driver {
    /// Polls and delivers until nothing more can be done at once.
    ///
    /// The order is the promise: first the function rests, then the next recorded result is
    /// offered, then bodies go on; only when there is neither do unrecorded steps begin.
    pub(super) fn round(&mut self) -> Round {
        let _here = Here::enter(Here::Function(self.board.wakes.token));
        let mut polls = 0;
        let mut bodies_polled = false;
        self.held_back = false;
        // A run that is to be given back is given what is recorded: that may be all it waits for.
        let delivers = self.stopping.as_ref().is_none_or(|it| it.stop == Stop::Release);
        loop {
            if polls == RESTLESS_POLLS_MAX {
                let run = self.lease.run;
                tracing::warn!(%run, "the workflow function wakes itself again and again");
                return Round::Yield;
            }
            if self.board.wakes.take_function() {
                polls += 1;
                if let Some(over) = self.poll_function() {
                    return Round::Over(over);
                }
                continue;
            }
            if delivers && self.board.offer_next() {
                self.board.wakes.want_function();
                polls = 0;
                continue;
            }
            // Once per round: a body that yields by waking itself must not take the thread.
            if bodies_polled && self.board.wakes.has_bodies() {
                return Round::Yield;
            }
            let bodies = self.board.wakes.take_bodies();
            if !bodies.is_empty() {
                bodies_polled = true;
                self.board.wake_leaves(&bodies);
                self.board.wakes.want_function();
                continue;
            }
            if self.stopping.is_some() {
                return Round::Rest;
            }
            if self.show_lone_result() {
                continue;
            }
            match self.let_steps_begin() {
                Some(Round::Rest) => continue,
                Some(over) => return over,
                None => return Round::Rest,
            }
        }
    }

    /// Polls the function once. What it was offered and did not take is withdrawn.
    fn poll_function(&mut self) -> Option<Verdict> {
        let function = self.function.as_mut()?;
        let began = Instant::now();
        let mut cx = Context::from_waker(&self.waker);
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| function.as_mut().poll(&mut cx)));
        let took = began.elapsed();
        if took > BLOCKING_POLL_WARN {
            let run = self.lease.run;
            tracing::warn!(
                %run,
                ?took,
                "a poll of the run held its thread; move blocking work to spawn_blocking"
            );
        }
        self.board.withdraw();
        if let Some(Trouble { code, detail }) = self.board.take_trouble() {
            let fails = match code {
                Code::HistoryFull => true,
                // What was recorded before goes on once the code is mended.
                Code::AmbiguousOrder | Code::StepIdTaken => !self.board.is_replaying(),
                _ => false,
            };
            return Some(match fails {
                true => Verdict::Returned(Err(Failure::engine(code, detail))),
                false => Verdict::Stuck(code, detail),
            });
        }
        let returned: Result<Json, Failure> = match polled {
            Ok(Poll::Pending) => return None,
            Ok(Poll::Ready(returned)) => returned,
            Err(panic) => Err(Failure::of_panic(panic)),
        };
        // It must not be polled again, whatever becomes of the run.
        drop_user_code(&mut self.function);
        // A cancelled run stays cancelled, whatever its function says at the last moment.
        match &self.stopping {
            Some(stopping) if stopping.stop >= Stop::Deadline => {
                Some(Verdict::Stopped(stopping.stop))
            }
            _ => Some(self.judge_return().unwrap_or(Verdict::Returned(returned))),
        }
    }

    /// What a return means that comes before the function asked for all that this build recorded: it
    /// went another way than it did before.
    fn judge_return(&mut self) -> Option<Verdict> {
        let leftover = self.course.is_forward().then(|| self.board.leftover(&self.setting.build));
        leftover.flatten().and_then(|leftover| self.judge(&leftover))
    }

    /// Shows a lone result to the function before it is durable, so that the last step's record
    /// and the run's outcome can share a commit. Nothing that follows from it begins before it is
    /// recorded: `let_steps_begin` waits for that.
    fn show_lone_result(&mut self) -> bool {
        if self.eager.is_some() || self.in_flight.is_some() {
            return false;
        }
        let Some(draft) = self.board.take_lone_result() else { return false };
        let (placed, record) = self.board.place(draft);
        self.board.recorded(placed);
        self.eager = Some(record);
        true
    }

    /// Lets unrecorded steps begin, unless records are left that nobody asked for: then the
    /// function went another way than before, and the run stops before the first body.
    fn let_steps_begin(&mut self) -> Option<Round> {
        if matches!(self.course, Course::Back(_)) {
            return self.is_rebuilt();
        }
        let undurable = self.eager.is_some() || self.is_eager_in_flight() || self.board.is_noting();
        if undurable || !self.board.is_asked() {
            return None;
        }
        // Asked once in a round: the alarm that looks again is set by the same answer.
        self.held_back = !self.setting.tenure.is_fresh();
        if self.held_back {
            return None;
        }
        if self.course.is_forward()
            && let Some(leftover) = self.board.leftover(&self.setting.build)
            && let Some(over) = self.judge(&leftover)
        {
            return Some(Round::Over(over));
        }
        self.board.allow_all();
        self.board.wakes.want_function();
        Some(Round::Rest)
    }

    pub(super) fn judge(&mut self, leftover: &Leftover) -> Option<Verdict> {
        if leftover.same_build.is_empty() {
            self.unasked.clone_from(&leftover.other_builds);
            return None;
        }
        let code = if leftover.foreign { Code::ForeignAwait } else { Code::HistoryMismatch };
        let detail = format!(
            "recorded under this build and not asked for: {}; asked for instead: {}",
            listed(&leftover.same_build),
            listed(&self.board.asked_steps()),
        );
        Some(Verdict::Stuck(code, detail))
    }
}
