//! Transactions on their way to the store.
//!
//! Owns: each transactional step's task, from its begin until the store's answer is known. Never
//! decides whether a failed one is tried again; its future does, as for any other step.
//!
//! A transaction whose answer was lost is executed again, as a whole: the store looks first
//! whether the step's record is there, in which case the first execution was committed and its
//! record is the answer; if it is not there, nothing of that execution is. So what the body
//! writes is kept once. The number stays the same and stays open until the answer is known,
//! so that nothing which a replay would see later is delivered before it.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinSet};

use super::board::{LeafId, Seat, Transaction};
use super::send::pauses;
use super::wake::Here;
use super::{Driver, Verdict};
use crate::Code;
use crate::limits::TRANSACTION_TIME_MAX;
use crate::store::{self, RecordRef, Store, Transact, Transacted};

/// The transactions of a run that are on their way. Dropped, it ends those that are not committed.
pub(super) type Transactions = JoinSet<Answered>;

/// What a store answered to a leaf's transaction.
type Answered = (LeafId, Result<Transacted, store::Error>);

impl Driver {
    /// Executes the transactions that have come in.
    pub(super) fn transact(&mut self) {
        for transaction in self.board.take_transactions() {
            let leaf = transaction.leaf;
            let transact = self.prepare(transaction);
            let store = Arc::clone(&self.setting.store);
            let (board, follows) = (Arc::clone(&self.board), transact.follows.clone());
            let task = async move {
                let answer = transact_until_answered(store, transact).await;
                if let Ok(Transacted::Recorded(record)) = &answer {
                    board.is_recorded(RecordRef::of(record), &follows);
                }
                (leaf, answer)
            };
            let task = self.transactions.spawn(task);
            self.board.transacts(leaf, task);
        }
    }

    fn prepare(&self, transaction: Transaction) -> Transact {
        let Transaction { leaf, step, body, try_number, began_at } = transaction;
        let board = Arc::clone(&self.board);
        let seat = Seat { board, leaf, step: Arc::clone(&step), try_number, began_at };
        let time_max = TRANSACTION_TIME_MAX.min(self.setting.tenure.lease() / 2);
        let follows = self.board.latest();
        Transact { lease: self.lease, follows, step, body, place: Arc::new(seat), time_max }
    }

    /// Looks whether transactions are answered, and tells their leaves.
    pub(super) fn poll_transactions(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Verdict>> {
        let mut told = Poll::Pending;
        while let Poll::Ready(Some(joined)) = self.transactions.poll_join_next(cx) {
            if let Err(verdict) = self.tell_transacted(joined) {
                return Poll::Ready(Err(verdict));
            }
            told = Poll::Ready(Ok(()));
        }
        told
    }

    fn tell_transacted(&mut self, joined: Result<Answered, JoinError>) -> Result<(), Verdict> {
        match joined {
            Ok((leaf, Ok(transacted))) => {
                self.made_progress();
                let _here = Here::enter(Here::Function(self.board.wakes.token));
                self.board.transacted(leaf, transacted);
                Ok(())
            }
            Ok((_, Err(error))) => Err(Verdict::of_refused(error)),
            // Its future was dropped before it had a number.
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => Err(Verdict::Stuck(Code::Panic, error.to_string())),
        }
    }

    /// Waits for the transactions whose futures are dropped and that may yet be committed, so that
    /// nothing is recorded after the attempt is settled. An error says that the lease is lost.
    pub(super) async fn let_transactions_end(&mut self) -> Result<(), store::Error> {
        while let Some(joined) = self.transactions.join_next().await {
            match joined {
                Ok((_, Err(error @ (store::Error::LeaseLost | store::Error::HistoryLost)))) => {
                    return Err(error);
                }
                // It is committed, so it may have to be undone.
                Ok((leaf, Ok(transacted))) => self.board.transacted(leaf, transacted),
                // A number that stayed open would hold up whatever comes after it.
                Ok((leaf, Err(_))) => self.board.transacted(leaf, Transacted::Unwanted),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Executes a transaction, again for as long as its outcome is unknown.
async fn transact_until_answered(
    store: Arc<dyn Store>,
    transact: Transact,
) -> Result<Transacted, store::Error> {
    let run = transact.lease.run;
    for pause in pauses() {
        match store.transact(transact.clone()).await {
            Err(store::Error::Unavailable(outage, source)) => {
                tracing::warn!(%run, ?outage, %source, "transaction not answered; again soon");
            }
            answer => return answer,
        }
        tokio::time::sleep(pause).await;
    }
    // The pauses never end.
    Err(store::Error::LeaseLost)
}
