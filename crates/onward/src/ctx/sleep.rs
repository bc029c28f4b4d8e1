//! A durable sleep.
//!
//! Owns: [`Sleep`]: when it is due, and its one record. Never records its begin: the due time
//! follows from the run's own time, which replays alike.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::driver::board::{Board, Draft, LeafId, LeafKind, Then, Told};
use crate::model::step_id;
use crate::{Code, Entry, Failure, Timestamp};

/// The name of sleeps among the engine's own steps.
const SLEEP: &str = "$sleep";

/// A sleep that a crash does not shorten or lengthen; made by [`Ctx::sleep`](crate::Ctx::sleep).
pub struct Sleep {
    board: Arc<Board>,
    step: Arc<str>,
    due: Timestamp,
    leaf: Option<LeafId>,
    misuse: Option<Failure>,
    ended: bool,
}

impl Sleep {
    pub(super) fn new(board: Arc<Board>, due: Timestamp) -> Self {
        Self::named(board, SLEEP, due)
    }

    /// A timer of the engine's own, of this name.
    pub(super) fn named(board: Arc<Board>, name: &str, due: Timestamp) -> Self {
        let misuse = board.check_place().err();
        let number = if misuse.is_none() { board.take_number(name) } else { 0 };
        let step = step_id::engine_numbered(name, number).into();
        Self { board, step, due, leaf: None, misuse, ended: false }
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
            let (leaf, _) = self.board.ask(&self.step, LeafKind::Timer, cx.waker());
            self.leaf = Some(leaf);
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
            // Only a transaction is told that it failed.
            Told::Wait | Told::Failed(_) => {}
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
