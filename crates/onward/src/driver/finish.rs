//! How an attempt ends.
//!
//! Owns: what a verdict means for the run, and the write that settles it. Never settles while the
//! function or one of its bodies is alive.

use super::past::listed;
use super::send::pauses;
use super::unreadable::Wait;
use super::{Driver, Drove, Setting, Stop, Verdict, drop_user_code};
use crate::ctx::CONTINUE;
use crate::ending::Ending;
use crate::limits::UNREADABLE_LOOK_MIN;
use crate::store::{self, Conflict, End, Lease, Settle, rules};
use crate::upkeep::cascade;
use crate::{Code, Failure, Json, Record, RunId, failpoint};

impl Driver {
    /// Drops the function, then settles the attempt as the verdict says. Gives the driver back if the
    /// run cannot go on with another input because it is asked to end.
    pub(super) async fn finish(mut self: Box<Self>, verdict: Verdict) -> Result<Drove, Box<Self>> {
        self.board.close_inbox();
        drop_user_code(&mut self.function);
        // A lease that is lost, or a worker that ends, makes a body that ended none that did not.
        self.free_keys().await;
        let wakes_seen = self.wakes_seen;
        let returned = matches!(verdict, Verdict::Returned(_));
        let end = match verdict {
            Verdict::LeaseLost => return Ok(Drove::LeaseLost),
            Verdict::HistoryLost => return Ok(history_lost(self.lease.run)),
            Verdict::Stopped(Stop::Drop) => return Ok(Drove::Dropped),
            Verdict::Stopped(Stop::Release) => End::Released,
            Verdict::Stopped(stop @ (Stop::Cancel | Stop::Deadline)) => end_of_stop(stop),
            // It is turned into what follows from it before.
            Verdict::Rebuilt => End::Released,
            Verdict::Parked(due, waits_for) => {
                let wake_at = [due, self.deadline_at].into_iter().flatten().min();
                End::Parked { wake_at, waits_for, wakes_seen }
            }
            Verdict::Stuck(code, detail) => stuck(self.lease.run, code, detail, wakes_seen),
            Verdict::Unreadable(detail) => {
                let (run, deadline_at) = (self.lease.run, self.deadline_at);
                let wait = Wait { run, deadline_at, pause: UNREADABLE_LOOK_MIN };
                wait.end(&self.setting, detail, wakes_seen)
            }
            Verdict::Returned(returned) => self.end_of_return(returned),
        };
        let parks = matches!(end, End::Parked { .. });
        let unasked = self.take_unasked(returned);
        let records = match self.let_work_end(&end).await {
            Ok(records) => records,
            Err(store::Error::LeaseLost) => return Ok(Drove::LeaseLost),
            Err(store::Error::HistoryLost) => return Ok(history_lost(self.lease.run)),
            Err(error) => {
                return Ok(settle_stuck(&self.setting, self.lease, error, wakes_seen).await);
            }
        };
        self.flush_notes().await;
        if parks {
            failpoint::hit("park.before");
        }
        let settled = Settle { follows: self.board.latest(), records, end, unasked };
        let drove = try_settle(&self.setting, self.lease, settled, wakes_seen).await;
        if parks {
            failpoint::hit("park.after");
        }
        drove.ok_or(self)
    }

    /// Waits for what is on its way; gives the records that go with the end.
    async fn let_work_end(&mut self, end: &End) -> Result<Vec<Record>, store::Error> {
        let (mut placed, records) = self.unsent();
        if let Some(in_flight) = self.in_flight.take() {
            // The grace time ended, or the function returned, while a write was on its way.
            placed.append(&mut in_flight.answered().await?);
        }
        // A child that comes to be after its cancelled parent has ended would be one that nobody ends.
        self.let_starts_end().await.map_err(|_| store::Error::LeaseLost)?;
        self.let_transactions_end().await?;
        // A note may follow from a result that is not durable yet; then that goes first. And what goes
        // with an end that may be refused would be lost with it.
        let first = self.board.has_notes() || matches!(end, End::Continued { .. });
        if !first {
            return Ok(records);
        }
        if !records.is_empty() {
            self.record(records).await?;
        }
        // A number that stayed open would hold up the undos, where the end is refused.
        placed.into_iter().for_each(|placed| self.board.recorded(placed));
        Ok(Vec::new())
    }

    /// The steps recorded under other builds that the function did not ask for. One that returned
    /// has asked for all that it ever will.
    fn take_unasked(&mut self, returned: bool) -> Vec<String> {
        if returned
            && self.course.is_forward()
            && let Some(leftover) = self.board.leftover(&self.setting.build)
        {
            self.unasked = leftover.other_builds;
        }
        let unasked = std::mem::take(&mut self.unasked);
        if !unasked.is_empty() {
            let steps = listed(&unasked);
            tracing::info!(run = %self.lease.run, %steps, "changed code asks for recorded steps no more");
        }
        unasked
    }

    fn end_of_return(&self, returned: Result<Json, Failure>) -> End {
        match (self.end_of_undo(&returned), returned) {
            (Some(end), _) => end,
            (None, Ok(output)) => End::Completed(output),
            (None, Err(failure)) => self.end_of_failure(failure),
        }
    }

    fn end_of_failure(&self, failure: Failure) -> End {
        if failure.is(CONTINUE)
            && let Some(input) = self.board.take_continue_as()
        {
            let undelivered = self.board.undelivered();
            return End::Continued { run: RunId::new(), input, undelivered };
        }
        let step = failure.step.as_deref().map(str::to_owned);
        let step = step.or_else(|| self.board.last_failed());
        End::Failed { failure, step }
    }
}

/// Gives the run back, whose records the store has lost: what it has is replayed.
fn history_lost(run: RunId) -> Drove {
    tracing::error!(
        %run,
        "the store lost records of the run that it had acknowledged, as a failover without synchronous \
         replication does; the run continues from what is left",
    );
    Drove::Dropped
}

/// How an attempt ends that cannot go on under this build, which somebody has to know.
pub(super) fn stuck(run: RunId, code: Code, detail: String, wakes_seen: u64) -> End {
    tracing::error!(%run, %code, %detail, "the run waits, stuck");
    End::Stuck { code, detail, wakes_seen }
}

/// How a run ends that was asked to, or whose time is over.
pub(super) fn end_of_stop(stop: Stop) -> End {
    if stop != Stop::Deadline {
        return End::Cancelled;
    }
    End::Failed { failure: rules::deadline_exceeded(), step: None }
}

/// Whether the end may be one that ends children too, so that it is worth to look for them.
fn may_cascade(end: &End) -> bool {
    match end {
        End::Cancelled => true,
        // It may have been asked to end; the store knows.
        End::Failed { failure, .. } => failure.is(Code::UndoFailed.as_str()),
        _ => false,
    }
}

/// Settles a run that does not go on with another input.
pub(super) async fn settle(
    setting: &Setting,
    lease: Lease,
    settle: Settle,
    wakes_seen: u64,
) -> Drove {
    try_settle(setting, lease, settle, wakes_seen).await.unwrap_or(Drove::Dropped)
}

/// Settles, and writes the same again for as long as the outcome is unknown. `None`: the run cannot go on
/// with another input, because it is asked to end.
/// `wakes_seen`: the number of wakes that the holder knows of, for a run whose end is refused.
async fn try_settle(
    setting: &Setting,
    lease: Lease,
    settle: Settle,
    wakes_seen: u64,
) -> Option<Drove> {
    for pause in pauses() {
        match setting.store.settle(lease, settle.clone()).await {
            Ok(_) => {
                if may_cascade(&settle.end) {
                    cascade(setting.store.as_ref()).await;
                }
                return Some(Drove::Settled(Ending::of_settle(lease.run, &settle.end)));
            }
            Err(store::Error::LeaseLost) => return Some(Drove::LeaseLost),
            Err(store::Error::HistoryLost) => return Some(history_lost(lease.run)),
            Err(store::Error::Conflict(Conflict::Ending { .. })) => return None,
            Err(store::Error::Unavailable(outage, source)) => {
                tracing::warn!(run = %lease.run, ?outage, %source, "not settled yet; again soon");
            }
            Err(error) => {
                tracing::error!(run = %lease.run, %error, "the run cannot be settled so");
                return Some(settle_stuck(setting, lease, error, wakes_seen).await);
            }
        }
        if setting.tenure.is_over() {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    Some(Drove::Dropped)
}

/// Sets a run aside whose end the store refuses, so that it is not held for ever.
async fn settle_stuck(
    setting: &Setting,
    lease: Lease,
    error: store::Error,
    wakes_seen: u64,
) -> Drove {
    let detail = error.to_string();
    let code = crate::Error::from(error).code();
    let end = End::Stuck { code, detail, wakes_seen };
    match setting.store.settle(lease, Settle::new(Vec::new(), end)).await {
        Ok(_) => Drove::Settled(None),
        Err(_) => Drove::Dropped,
    }
}

/// A run's output, as its handler gives it.
pub(crate) fn output<O: serde::Serialize>(output: &O) -> Result<Json, Failure> {
    Json::of(output).map_err(|error| {
        Failure::engine(error.code(), format!("the workflow's output cannot be stored: {error}"))
    })
}
