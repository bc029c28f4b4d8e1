//! Undos: what takes a step back when its run fails or is cancelled, and what a cancel has executed.
//!
//! Owns: [`StepFuture::undo`], [`Ctx::on_cancel`] and the function that a run executes once it turns
//! back. Never decides when that is; the driver does.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::step::StepFuture;
use super::{Ctx, Step, TransactionFuture};
use crate::driver::board::{Board, Undo, UndoBody, UndoWork};
use crate::driver::past::listed_of;
use crate::limits::{
    LEFT_UNDONE_LISTED_MAX, LEFT_UNDONE_MESSAGE_BYTES_MAX, UNDO_PAUSE_MAX, UNDO_TRIES_DEFAULT,
};
use crate::model::step_id;
use crate::model::undo::{Began, Outcome};
use crate::{Code, Failure, Json, Retry, RunState};

/// The undo of a step that is being set up.
#[derive(Default)]
pub(super) struct UndoSetup {
    body: Option<UndoBody>,
    retry: Option<Retry>,
}

impl<T: DeserializeOwned + 'static> StepFuture<'_, T> {
    /// Takes the step back when the run fails, is cancelled or runs out of time: a saga.
    ///
    /// The undos of all steps that are done are then executed, the last one first, each as a step of
    /// its own that is recorded and tried again. An undo is given what its step was recorded with,
    /// owns whatever else it needs, and cannot take steps. It is executed at least once: hand on
    /// [`Step::id`], which is the undo's own and always the same.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn charge(_: &str, _: u64) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn refund(_: &str, _: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn ship(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn order(ctx: Ctx, cents: u64) -> Result<(), Failure> {
    ///     let charge = ctx.step("charge", async |step| charge(step.id(), cents).await);
    ///     let receipt: String = charge
    ///         .undo(async |receipt: String, step| refund(step.id(), &receipt).await)
    ///         .await?;
    ///     // If this fails for good, the money goes back.
    ///     ctx.step("ship", |_| ship(&receipt)).await
    /// }
    /// ```
    ///
    /// A step with a [`key`](Self::key) belongs to every run that takes it, so no single run may take
    /// it back: the two together are refused with `invalid_option`.
    pub fn undo<U, E, F, Fut>(mut self, undo: F) -> Self
    where
        E: Into<Failure>,
        F: Fn(T, Step) -> Fut + Send + 'static,
        Fut: Future<Output = Result<U, E>> + Send + 'static,
    {
        let body: UndoBody = Box::new(move |json, step| match json.read::<T>() {
            Ok(result) => {
                let undo = undo(result, step);
                Box::pin(async move { undo.await.map(drop).map_err(Into::into) })
            }
            Err(error) => Box::pin(ready(Err(error.into()))),
        });
        self.undo.get_or_insert_default().body = Some(body);
        self
    }
}

impl<T> StepFuture<'_, T> {
    /// How the [`undo`](Self::undo) is tried again when it fails. Unless set it is tried
    /// [`UNDO_TRIES_DEFAULT`] times, with pauses that double from a second up to five minutes.
    ///
    /// ```
    /// # use {onward::{Ctx, Failure, Retry}, std::time::Duration};
    /// # async fn reserve() -> Result<u32, std::io::Error> { Ok(1) }
    /// # async fn release(_: u32) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn workflow(ctx: Ctx) -> Result<u32, Failure> {
    /// let day = Retry::fixed(Duration::from_secs(60 * 60)).tries(24);
    /// ctx.step("reserve", |_| reserve()).undo(|seat, _| release(seat)).undo_retry(day).await
    /// # }
    /// ```
    pub fn undo_retry(mut self, retry: Retry) -> Self {
        self.undo.get_or_insert_default().retry = Some(retry);
        self
    }

    /// Leaves the undo with the run, before the step is asked for.
    pub(super) fn keep_undo(&mut self, step: &str) -> Result<(), Failure> {
        let Some(setup) = self.undo.take() else { return Ok(()) };
        let refused = |why: &str| Err(Failure::engine(Code::InvalidOption, why));
        if self.has_key() {
            return refused("a step with a key belongs to all runs, so none may undo it");
        }
        let Some(body) = setup.body else {
            return refused("undo_retry is about an undo; set one with undo");
        };
        let retry = setup.retry.unwrap_or_else(persistent);
        self.board.keep_undo(step, Undo { body, retry });
        Ok(())
    }
}

impl<T: DeserializeOwned + 'static> TransactionFuture<'_, T> {
    /// Takes the step back when the run fails, as [`StepFuture::undo`] does. The undo is an ordinary
    /// step and not a transaction: it is executed at least once.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn tell_warehouse(_: &str, _: i64) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn workflow(ctx: Ctx) -> Result<i64, Failure> {
    /// let reserve = ctx.sqlite_transaction("reserve", |db, _| {
    ///     db.query_row("update stock set n = n - 1 returning n", (), |row| row.get(0))
    /// });
    /// reserve.undo(async |left: i64, step| tell_warehouse(step.id(), left).await).await
    /// # }
    /// ```
    pub fn undo<U, E, F, Fut>(self, undo: F) -> Self
    where
        E: Into<Failure>,
        F: Fn(T, Step) -> Fut + Send + 'static,
        Fut: Future<Output = Result<U, E>> + Send + 'static,
    {
        Self(self.0.undo(undo))
    }
}

impl<T> TransactionFuture<'_, T> {
    /// How the [`undo`](Self::undo) is tried again, as [`StepFuture::undo_retry`] says.
    pub fn undo_retry(self, retry: Retry) -> Self {
        Self(self.0.undo_retry(retry))
    }
}

impl Ctx {
    /// Executes this when the run is cancelled, before its undos: as a step that is recorded, tried
    /// again as an undo is, and given an id of its own. Of several the last is executed first.
    ///
    /// It is for what is not a step's result: telling somebody, or stopping what runs elsewhere.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// # async fn tell(_: &str, _: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn reminder(ctx: Ctx, user: String) -> Result<(), Failure> {
    ///     let of = user.clone();
    ///     ctx.on_cancel(move |step| {
    ///         let of = of.clone();
    ///         async move { tell(step.id(), &of).await }
    ///     });
    ///     ctx.sleep(Duration::from_secs(24 * 60 * 60)).await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    /// Outside the workflow function, as [`random`](Ctx::random) does.
    pub fn on_cancel<U, E, F, Fut>(&self, call: F)
    where
        E: Into<Failure>,
        F: Fn(Step) -> Fut + Send + 'static,
        Fut: Future<Output = Result<U, E>> + Send + 'static,
    {
        self.refuse_elsewhere("on_cancel");
        let body: UndoBody = Box::new(move |_, step| {
            let call = call(step);
            Box::pin(async move { call.await.map(drop).map_err(Into::into) })
        });
        self.board.keep_on_cancel(Undo { body, retry: persistent() });
    }
}

/// How an undo is tried again unless it is told otherwise: what is left undone needs a person.
fn persistent() -> Retry {
    Retry::exponential(Duration::from_secs(1)).cap(UNDO_PAUSE_MAX).tries(UNDO_TRIES_DEFAULT)
}

/// Something that is left undone.
#[derive(Debug, Serialize)]
pub(crate) struct Left {
    /// The step that was to be undone.
    pub(crate) step: String,
    /// Why it is not, to branch on.
    pub(crate) code: String,
    /// Why it is not, for people.
    pub(crate) message: String,
}

impl Left {
    pub(crate) fn new(step: impl Into<String>, code: Code, message: impl Into<String>) -> Self {
        Self { step: step.into(), code: code.as_str().to_owned(), message: message.into() }
    }

    fn of_failure(step: String, failure: &Failure) -> Self {
        Self { step, code: failure.code.clone(), message: failure.message.clone() }
    }
}

/// What a run executes that turns back: "undo began" is recorded first, then one undo after the
/// other. One that fails for good does not keep the others from being executed. `missing`: why an undo
/// is not there.
pub(crate) async fn undo_all(
    board: Arc<Board>,
    began: Began,
    work: Vec<UndoWork>,
    missing: (Code, String),
) -> Result<Json, Failure> {
    let (all, mut left) = (work.len(), Vec::new());
    let outcome = began.outcome.clone();
    let first = move |_| ready(Ok::<_, Failure>(began.clone()));
    let first = StepFuture::of_engine(Arc::clone(&board), step_id::UNDO.to_owned(), first);
    first.retry(Retry::never()).await?;
    for UndoWork { of, step, undo } in work {
        let Some((Undo { body, retry }, json)) = undo else {
            left.push(Left::new(of, missing.0, missing.1.clone()));
            continue;
        };
        let undo = move |step| body(&json, step);
        let undo = StepFuture::<()>::of_engine(Arc::clone(&board), step, undo);
        if let Err(failure) = undo.retry(retry).await {
            left.push(Left::of_failure(of, &failure));
        }
    }
    if left.is_empty() { Ok(Json::stored("null")) } else { Err(undo_failed(&outcome, left, all)) }
}

/// What is told of a run that is not wholly undone.
#[derive(Serialize)]
struct Details<'a> {
    left_undone: &'a [Left],
    left_count: usize,
    outcome: RunState,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a Failure>,
}

/// What a run fails with that is not wholly undone.
pub(crate) fn undo_failed(outcome: &Outcome, mut left: Vec<Left>, all: usize) -> Failure {
    let left_count = left.len();
    left.truncate(LEFT_UNDONE_LISTED_MAX);
    for left in &mut left {
        // The whole of it is in the history.
        left.message.truncate(left.message.floor_char_boundary(LEFT_UNDONE_MESSAGE_BYTES_MAX));
    }
    let (before, failure) = match outcome {
        Outcome::Failed { failure } => (format!("failed with {failure}"), Some(failure)),
        Outcome::Cancelled => ("been cancelled".to_owned(), None),
    };
    let shown =
        left.iter().map(|left| format!("{:?} ({}: {})", left.step, left.code, left.message));
    let shown = listed_of(shown, left_count);
    let message = format!("left undone, {left_count} of {all}: {shown}; the run had {before}");
    let details = Details { left_undone: &left, left_count, outcome: outcome.state(), failure };
    let details = Json::of(&details).or_else(|_| Json::of(&Details { failure: None, ..details }));
    let failed = Failure::engine(Code::UndoFailed, message);
    details.map_or_else(|_| failed.clone(), |details| failed.clone().details(&details))
}
