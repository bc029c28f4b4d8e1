//! Records on their way to the store.
//!
//! Owns: the one write that is on its way. Never reads what became of a write whose answer was
//! lost: it writes the same again.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::board::Placed;
use super::wake::Here;
use super::{Driver, Verdict};
use crate::Record;
use crate::store::{self, Append, BoxFuture, Lease, RecordRef, Store};

/// The pause before a write whose outcome is unknown is written again.
const AGAIN_FIRST: Duration = Duration::from_millis(50);

/// The longest such pause.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// A write that is on its way.
pub(super) struct InFlight {
    /// What the leaves that wait for it are told then.
    placed: Vec<Placed>,
    /// Whether the function has seen it already.
    eager: bool,
    answer: BoxFuture<'static, Result<(), store::Error>>,
}

impl InFlight {
    /// Waits for the answer, and gives what the leaves that wait for it are told then.
    pub(super) async fn answered(self) -> Result<Vec<Placed>, store::Error> {
        self.answer.await?;
        Ok(self.placed)
    }
}

impl Driver {
    /// Sends what is to be recorded, if nothing is on its way: what comes in meanwhile goes
    /// together with the next write.
    pub(super) fn send(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        let eager = self.eager.take();
        let was_eager = eager.is_some();
        let mut records: Vec<Record> = eager.into_iter().collect();
        let mut placed = Vec::new();
        for draft in self.board.take_drafts() {
            let (place, record) = self.board.place(draft);
            placed.push(place);
            records.push(record);
        }
        if records.is_empty() {
            return;
        }
        let answer = Box::pin(self.record(records));
        self.in_flight = Some(InFlight { placed, eager: was_eager, answer });
    }

    /// What is not sent yet, for the write that settles the attempt, and the places that it takes.
    pub(super) fn unsent(&mut self) -> (Vec<Placed>, Vec<Record>) {
        let mut records: Vec<Record> = self.eager.take().into_iter().collect();
        let mut placed = Vec::new();
        for draft in self.board.take_drafts() {
            let (place, record) = self.board.place(draft);
            placed.push(place);
            records.push(record);
        }
        (placed, records)
    }

    pub(super) fn is_eager_in_flight(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| in_flight.eager)
    }

    /// Looks whether the write on its way is answered, and lets its leaves have their results.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Verdict>> {
        let Some(in_flight) = &mut self.in_flight else { return Poll::Pending };
        let Poll::Ready(answer) = in_flight.answer.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let Some(in_flight) = self.in_flight.take() else { return Poll::Pending };
        match answer {
            Ok(()) => {
                self.made_progress();
                let _here = Here::enter(Here::Function(self.board.wakes.token));
                in_flight.placed.into_iter().for_each(|placed| self.board.recorded(placed));
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(Verdict::of_refused(error))),
        }
    }
}

impl Driver {
    /// Records, behind all that is recorded.
    pub(super) fn record(
        &self,
        records: Vec<Record>,
    ) -> impl Future<Output = Result<(), store::Error>> + Send + use<> {
        let (store, board, lease) =
            (Arc::clone(&self.setting.store), Arc::clone(&self.board), self.lease);
        let append = Append { follows: board.latest(), records };
        async move {
            let answer = until_answered(store, lease, &append).await;
            if let (Ok(()), Some(last)) = (&answer, append.records.last()) {
                board.is_recorded(RecordRef::of(last), &append.follows);
            }
            answer
        }
    }
}

/// Writes the same rows again for as long as the outcome is unknown: a read could miss a commit that is
/// still under way.
async fn until_answered(
    store: Arc<dyn Store>,
    lease: Lease,
    append: &Append,
) -> Result<(), store::Error> {
    for pause in pauses() {
        match store.record(lease, append.clone()).await {
            Err(store::Error::Unavailable(outage, source)) => {
                tracing::warn!(run = %lease.run, ?outage, %source, "not recorded yet; again soon");
            }
            answer => return answer,
        }
        tokio::time::sleep(pause).await;
    }
    // The pauses never end.
    Err(store::Error::LeaseLost)
}

/// The pauses between repeats of a write.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(AGAIN_FIRST), |pause| Some((*pause * 2).min(AGAIN_MAX)))
}
