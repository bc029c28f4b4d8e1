//! Waiting for a signal.
//!
//! Owns: [`SignalFuture`] and [`SignalWithin`], its form with a time limit. Never keeps a signal: one
//! that came while nobody waited is delivered to the next that does.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Sleep;
use crate::driver::board::{Awaited, Board, Child, LeafId, LeafKind, Numbered, Told};
use crate::limits::DURATION_MAX;
use crate::model::step_id;
use crate::store::NewRun;
use crate::{Code, Entry, Failure, Json, Timestamp, Waits};

/// The next signal of a name; made by [`Ctx::signal`](crate::Ctx::signal).
#[must_use = "a signal is waited for when it is awaited"]
pub struct SignalFuture<T> {
    wait: Wait,
    name: String,
    now: Timestamp,
    output: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> SignalFuture<T> {
    pub(super) fn new(board: Arc<Board>, name: &str) -> Self {
        let now = board.now();
        let waits = Waits::Signal { name: name.to_owned() };
        let step = step_id::signal(name).into();
        let wait = Wait::new(board, LeafKind::Signal, step, waits).numbered();
        Self { wait, name: name.to_owned(), now, output: PhantomData }
    }

    /// Waits for this long at most, and gives nothing if no signal came by then. The time counts
    /// from when this future was made, over crashes and retries; a signal that comes later is for the
    /// next wait, also when no worker was there to see the time pass.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// async fn approval(ctx: Ctx, _: ()) -> Result<bool, Failure> {
    ///     let day = Duration::from_secs(24 * 60 * 60);
    ///     let answer = ctx.signal::<bool>("approved").timeout(day).await?;
    ///     Ok(answer.unwrap_or(false)) // nobody answered
    /// }
    /// ```
    pub fn timeout(self, limit: Duration) -> SignalWithin<T> {
        let due = self.now + limit.min(DURATION_MAX);
        self.until(due)
    }

    /// Waits until this time at most.
    pub(super) fn until(mut self, due: Timestamp) -> SignalWithin<T> {
        self.wait.awaited.due = Some(due);
        let board = Arc::clone(&self.wait.board);
        let limit = Sleep::limit(board, &step_id::timeout(&self.name), due);
        SignalWithin { signal: self, limit }
    }
}

impl<T: DeserializeOwned> Future for SignalFuture<T> {
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Poll::Ready(taken) = this.wait.poll(cx, None) else { return Poll::Pending };
        Poll::Ready(taken.and_then(|body| this.wait.read(&body)))
    }
}

/// The next signal of a name, if it comes in time; made by [`SignalFuture::timeout`].
#[must_use = "a signal is waited for when it is awaited"]
pub struct SignalWithin<T> {
    signal: SignalFuture<T>,
    limit: Sleep,
}

impl<T: DeserializeOwned> Future for SignalWithin<T> {
    type Output = Result<Option<T>, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        // At most one of the two is ready in a poll: results are delivered one at a time.
        if let Poll::Ready(signal) = Pin::new(&mut this.signal).poll(cx) {
            return Poll::Ready(signal.map(Some));
        }
        match Pin::new(&mut this.limit).poll(cx) {
            Poll::Ready(()) => {
                this.signal.wait.leave();
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for SignalFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalFuture").field("name", &self.name).finish()
    }
}

impl<T> fmt::Debug for SignalWithin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalWithin")
            .field("signal", &self.signal)
            .field("limit", &self.limit)
            .finish()
    }
}

/// A leaf that waits for a signal of some name.
pub(super) struct Wait {
    pub(super) board: Arc<Board>,
    kind: LeafKind,
    pub(super) step: Arc<str>,
    awaited: Awaited,
    /// Its number among the waits of its name: they are served in the order in which they were made.
    number: Option<Numbered>,
    leaf: Option<LeafId>,
    /// The number of the record that it was given.
    pub(super) taken: u64,
    misuse: Option<Failure>,
    ended: bool,
}

impl Wait {
    pub(super) fn new(board: Arc<Board>, kind: LeafKind, step: Arc<str>, waits: Waits) -> Self {
        let misuse = board.check_place().err();
        let (awaited, number) = (Awaited { waits, due: None, order: 0 }, None);
        Self { board, kind, step, awaited, number, leaf: None, taken: 0, misuse, ended: false }
    }

    /// Lets it be one of several of its name.
    fn numbered(mut self) -> Self {
        if self.misuse.is_none() {
            let number = self.board.take_number(&self.step);
            self.awaited.order = number.number;
            self.number = Some(number);
        }
        self
    }

    /// Gives what the signal carries, when it is this wait's turn. `child`: the run that is started
    /// first.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        child: Option<&NewRun>,
    ) -> Poll<Result<Json, Failure>> {
        match self.poll_told(cx) {
            Poll::Ready(Told::Begin) => {
                if let (Some(run), Some(leaf)) = (child.cloned(), self.leaf) {
                    self.board.start_child(Child { leaf, run });
                }
                Poll::Pending
            }
            Poll::Ready(Told::Take(Some(record))) => {
                self.taken = record.seq;
                match record.entry {
                    Entry::Arrived(body) => Poll::Ready(Ok(body)),
                    _ => Poll::Pending,
                }
            }
            Poll::Ready(Told::Failed(misuse)) => Poll::Ready(Err(misuse)),
            Poll::Ready(Told::Full) => {
                let advice = Code::HistoryFull.advice();
                Poll::Ready(Err(Failure::engine(Code::HistoryFull, advice)))
            }
            _ => Poll::Pending,
        }
    }

    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Told> {
        if let Some(misuse) = self.misuse.take().or_else(|| self.board.check_place().err()) {
            self.ended = true;
            return Poll::Ready(Told::Failed(misuse));
        }
        assert!(!self.ended, "a wait for {:?} was polled after it had ended", self.step);
        let Some(leaf) = self.leaf else {
            self.number.iter().for_each(|number| self.board.check_number(number));
            let awaited = self.awaited.clone();
            self.leaf = Some(self.board.ask_signal(&self.step, self.kind, awaited, cx.waker()));
            return Poll::Pending;
        };
        match self.board.tell_signal(leaf, cx.waker()) {
            Told::Wait => Poll::Pending,
            told => {
                if matches!(told, Told::Take(_) | Told::Full) {
                    self.leaf = None;
                    self.ended = true;
                }
                Poll::Ready(told)
            }
        }
    }

    /// Waits no longer, also while it is not dropped: what comes now is for others.
    fn leave(&mut self) {
        self.ended = true;
        if let Some(leaf) = self.leaf.take() {
            self.board.forget(leaf);
        }
    }

    /// Reads what came. What does not fit the type stops the run under this build.
    pub(super) fn read<T: DeserializeOwned>(&self, body: &Json) -> Result<T, Failure> {
        body.read().map_err(|error| {
            let detail = format!("signal {:?}: {}", &*self.step, error.detail());
            self.board.trouble(Code::TypeMismatch, detail.clone());
            Failure::engine(Code::TypeMismatch, detail)
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.leave();
    }
}
