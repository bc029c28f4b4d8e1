//! Children on their way to the store.
//!
//! Owns: starting them, under the run's lease. Never starts one twice: its id is the same over all
//! attempts, and a start is known by it.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::board::{Child, LeafId};
use super::send::pauses;
use super::wake::Here;
use super::{Driver, Verdict};
use crate::RunId;
use crate::limits::START_BATCH_MAX;
use crate::store::{self, BoxFuture, NewParent, NewRun, Store};

/// Children whose start is on its way.
pub(super) struct Starting {
    leaves: Vec<(LeafId, RunId)>,
    answer: BoxFuture<'static, Result<(), store::Error>>,
}

impl Driver {
    /// Starts the children that have come in, if no start is on its way: what comes in meanwhile
    /// goes together with the next.
    pub(super) fn start_children(&mut self) {
        if self.starting.is_some() {
            return;
        }
        self.to_start.extend(self.board.take_children());
        let count = self.to_start.len().min(START_BATCH_MAX);
        if count == 0 {
            return;
        }
        let lease = self.lease;
        let mut leaves = Vec::with_capacity(count);
        let mut runs = Vec::with_capacity(count);
        for Child { leaf, mut run } in self.to_start.drain(..count) {
            if let Some(parent) = &mut run.parent {
                *parent = NewParent { lease, ..parent.clone() };
            }
            leaves.push((leaf, run.id));
            runs.push(run);
        }
        let store = Arc::clone(&self.setting.store);
        self.starting = Some(Starting { leaves, answer: Box::pin(start(store, runs)) });
    }

    /// Waits for the start on its way: a child that comes to be after its parent has turned back or
    /// ended would be one that nobody ends. What the store refuses was not started.
    pub(super) async fn let_starts_end(&mut self) -> Result<(), Verdict> {
        self.to_start.clear();
        let Some(starting) = self.starting.take() else { return Ok(()) };
        match starting.answer.await {
            Err(store::Error::LeaseLost) => Err(Verdict::LeaseLost),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Looks whether the start on its way is answered, and lets its leaves wait.
    pub(super) fn poll_starting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Verdict>> {
        let Some(starting) = &mut self.starting else { return Poll::Pending };
        let Poll::Ready(answer) = starting.answer.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let Some(starting) = self.starting.take() else { return Poll::Pending };
        match answer {
            Ok(()) => {
                let _here = Here::enter(Here::Function(self.board.wakes.token));
                let started = starting.leaves.into_iter();
                started.for_each(|(leaf, child)| self.board.child_started(leaf, child));
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(Verdict::of_refused(error))),
        }
    }
}

/// Starts runs, again for as long as the outcome is unknown.
async fn start(store: Arc<dyn Store>, runs: Vec<NewRun>) -> Result<(), store::Error> {
    for pause in pauses() {
        let answers = match store.start(runs.clone()).await {
            Ok(answers) => answers.into_iter().collect::<Result<Vec<_>, _>>(),
            Err(error) => Err(error),
        };
        match answers {
            Ok(_) => return Ok(()),
            Err(store::Error::Unavailable(outage, source)) => {
                tracing::warn!(?outage, %source, "children not started yet; again soon");
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
    }
    // The pauses never end.
    Err(store::Error::LeaseLost)
}
