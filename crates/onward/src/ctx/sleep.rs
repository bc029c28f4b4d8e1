//! A durable sleep.
//!
//! Owns: [`Sleep`]: when it is due, and its one record. Never records its begin: the due time
//! follows from the run's own time, which replays alike.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::driver::board::{Board, Draft, LeafId, LeafKind, Numbered, Then, Told};
use crate::model::step_id;
use crate::{Code, Entry, Failure, Timestamp};

/// The name of sleeps among the engine's own steps.
const SLEEP: &str = "$sleep";

/// A sleep that a crash does not shorten or lengthen; made by [`Ctx::sleep`](crate::Ctx::sleep).
///
/// It does nothing unless you await it. The compiler warns if you do not:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn workflow(ctx: onward::Ctx, hour: std::time::Duration) {
/// ctx.sleep(hour);
/// # }
/// ```
#[must_use = "a sleep does nothing until it is awaited"]
pub struct Sleep {
    board: Arc<Board>,
    step: Arc<str>,
    number: Option<Numbered>,
    due: Timestamp,
    /// Whether it is the limit of a wait for a signal, which may have come in time.
    limits_wait: bool,
    leaf: Option<LeafId>,
    misuse: Option<Failure>,
    ended: bool,
}

impl Sleep {
    pub(super) fn new(board: Arc<Board>, due: Timestamp) -> Self {
        Self::named(board, SLEEP, due)
    }

    /// The limit of a wait for a signal.
    pub(super) fn limit(board: Arc<Board>, name: &str, due: Timestamp) -> Self {
        let mut limit = Self::named(board, name, due);
        limit.limits_wait = true;
        limit
    }

    fn named(board: Arc<Board>, name: &str, due: Timestamp) -> Self {
        let misuse = board.check_place().err();
        let number = misuse.is_none().then(|| board.take_number(name));
        let step = step_id::engine_numbered(name, number.as_ref().map_or(1, |it| it.number)).into();
        Self { board, step, number, due, limits_wait: false, leaf: None, misuse, ended: false }
    }

    /// Gives the sleep its own id among the sleeps of the run, as
    /// [`StepFuture::id`](crate::StepFuture::id) does for a step. Use it in a function that sleeps and
    /// that several branches of a `select!` or `join!` call.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// async fn nap(ctx: &Ctx, who: &str) {
    ///     ctx.sleep(Duration::from_secs(60)).id(who).await;
    /// }
    ///
    /// async fn naps(ctx: Ctx, _: ()) -> Result<(), Failure> {
    ///     tokio::join!(nap(&ctx, "ada"), nap(&ctx, "bob"));
    ///     Ok(())
    /// }
    /// ```
    pub fn id(mut self, id: impl fmt::Display) -> Self {
        if let Some(number) = self.number.take() {
            self.board.return_number(&number);
        }
        self.step = step_id::engine_explicit(SLEEP, &id.to_string()).into();
        self
    }

    fn ask(&mut self, cx: &mut Context<'_>) {
        match &self.number {
            Some(number) => self.board.check_number(number),
            None => self.board.claim_explicit(&self.step),
        }
        let (leaf, _) = self.board.ask(&self.step, LeafKind::Timer, cx.waker());
        self.leaf = Some(leaf);
    }
}

impl Future for Sleep {
    type Output = ();

    /// A sleep cannot fail, so one that is used where it does not belong panics.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let misuse = self.misuse.take().or_else(|| self.board.check_place().err());
        assert!(
            misuse.is_none(),
            "{}",
            misuse.map_or(String::new(), |failure| failure.to_string())
        );
        assert!(!self.ended, "a sleep was polled after it had ended");
        let Some(leaf) = self.leaf else {
            self.ask(cx);
            return Poll::Pending;
        };
        match self.board.tell(leaf, cx.waker()) {
            Told::Begin | Told::Proceed => self.look(leaf),
            Told::Take(_) => {
                self.leaf = None;
                self.ended = true;
                return Poll::Ready(());
            }
            // A sleep cannot fail, and must not end early: the run fails instead.
            Told::Full => {
                self.leaf = None;
                let advice = Code::HistoryFull.advice();
                self.board.trouble(Code::HistoryFull, advice.to_owned());
            }
            // Only a transaction is told that it failed, and only a step of its key.
            Told::Wait | Told::Failed(_) | Told::Key(_) => {}
        }
        Poll::Pending
    }
}

impl Sleep {
    fn look(&self, leaf: LeafId) {
        let now = self.board.store.clock().now();
        if now < self.due {
            return self.board.pause(leaf, self.due);
        }
        if self.limits_wait && !self.board.may_end_wait(leaf) {
            return;
        }
        let step = Arc::clone(&self.step);
        let draft = Draft { leaf, step, entry: Entry::Fired, try_number: 1, began_at: self.due };
        self.board.report(draft, Then::Record);
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(leaf) = self.leaf {
            self.board.forget(leaf);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("step", &self.step).field("due", &self.due).finish()
    }
}
