//! Keys of steps on their way to their store.
//!
//! Owns: each take and each settle of a step's key, from its begin until the answer is known, and
//! the end of what dropped steps held. Never decides what an answer means for its step; its
//! future does.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};

use super::board::{Board, Hold, KeyAsk, KeyTold, LeafId};
use super::wake::Here;
use super::{Driver, Verdict};
use crate::Code;
use crate::keyed::{self, Kept, KeyPlace, Renewal};
use crate::store::{self, KeyAnswer, KeyLease, SettleKey, Store};

/// How long an attempt that ends waits until the keys of its steps are free. What is on its way goes on
/// by itself; a key that is not freed is free when its lease is over.
const FREEING_MAX: Duration = Duration::from_secs(2);

/// What is on its way about the keys of a run.
pub(super) type KeyWork = JoinSet<Worked>;

/// What was done.
pub(super) enum Worked {
    /// What a step asked for.
    Asked(LeafId, Result<Answered, store::Error>),
    /// A key was freed, or not.
    Freed,
}

pub(super) enum Answered {
    Held(KeyLease, SettleKey, Renewal),
    Told(KeyTold),
}

impl Driver {
    /// Does what steps want done about their keys.
    pub(super) fn work_on_keys(&mut self) {
        let patience = self.setting.linger;
        for ask in self.board.take_key_asks() {
            // Whoever is gone needs no key, but has an end to tell.
            if ask.end.is_none() && !self.board.is_alive(ask.leaf) {
                continue;
            }
            let (place, runs) = (self.setting.keys.clone(), Arc::clone(&self.setting.store));
            let (leaf, board) = (ask.leaf, Arc::clone(&self.board));
            self.key_work.spawn(async move {
                Worked::Asked(leaf, work(place, runs.as_ref(), ask, patience, &board).await)
            });
        }
        for (lease, end) in self.board.take_given_up() {
            let place = self.setting.keys.clone();
            self.key_work.spawn(async move {
                give_up(&place, lease, end).await;
                Worked::Freed
            });
        }
    }

    /// Looks what was answered about keys, and tells the steps.
    pub(super) fn poll_keys(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Verdict>> {
        let mut told = Poll::Pending;
        while let Poll::Ready(Some(joined)) = self.key_work.poll_join_next(cx) {
            if let Err(verdict) = self.tell_worked(joined) {
                return Poll::Ready(Err(verdict));
            }
            told = Poll::Ready(Ok(()));
        }
        told
    }

    fn tell_worked(&self, joined: Result<Worked, JoinError>) -> Result<(), Verdict> {
        let (leaf, answered) = match joined {
            Ok(Worked::Freed) => return Ok(()),
            Ok(Worked::Asked(leaf, Ok(answered))) => (leaf, answered),
            Ok(Worked::Asked(_, Err(error))) => return Err(Verdict::of_refused(error)),
            Err(error) => return Err(Verdict::Stuck(Code::Panic, error.to_string())),
        };
        let told = match answered {
            Answered::Told(told) => told,
            Answered::Held(lease, dropped, renewal) => {
                KeyTold::Held(Hold::new(&self.board, lease, dropped, renewal))
            }
        };
        let _here = Here::enter(Here::Function(self.board.wakes.token));
        self.board.key_told(leaf, told);
        Ok(())
    }

    /// Frees what the steps of an attempt that ends still hold, and settles what its last poll ended,
    /// for a limited time.
    pub(super) async fn free_keys(&mut self) {
        let freeing = async {
            self.work_on_keys();
            while let Some(joined) = self.key_work.join_next().await {
                // Its step is dropped, and so is the hold, which is given up thereby.
                let _ = self.tell_worked(joined);
                self.work_on_keys();
            }
        };
        if tokio::time::timeout(FREEING_MAX, freeing).await.is_err() {
            tracing::warn!(run = %self.lease.run, "the run goes on before its steps' keys are free");
            self.key_work.detach_all();
        }
    }
}

async fn work(
    place: KeyPlace,
    runs: &dyn Store,
    ask: KeyAsk,
    patience: Duration,
    board: &Board,
) -> Result<Answered, store::Error> {
    let (lease_ms, holders) = (ask.wish.lease_ms, place.holders(runs));
    let Some(keys) = place.keys() else { return Ok(Answered::Told(KeyTold::Unsupported)) };
    let answer = match ask.end {
        None => keyed::take(keys, holders, ask.wish, patience).await?,
        Some((lease, settle)) => {
            match keyed::settle(keys, holders, lease, settle, &ask.wish).await? {
                Kept::Own => return Ok(Answered::Told(KeyTold::Kept)),
                Kept::Other(answer) => answer,
            }
        }
    };
    match answer {
        // Its step is gone, and its driver may be: nobody else would give it up.
        KeyAnswer::Held(lease) if !board.is_alive(ask.leaf) => {
            give_up(&place, lease, ask.dropped).await;
            Ok(Answered::Told(KeyTold::Kept))
        }
        KeyAnswer::Held(lease) => {
            let renewal = Renewal::start(place, lease.clone(), lease_ms);
            Ok(Answered::Held(lease, ask.dropped, renewal))
        }
        answer => Ok(Answered::Told(KeyTold::Answer(answer))),
    }
}

async fn give_up(place: &KeyPlace, lease: KeyLease, end: SettleKey) {
    let Some(keys) = place.keys() else { return };
    let key = lease.key.clone();
    if let Err(error) = keys.settle_key(lease, end).await {
        tracing::warn!(key, %error, "a key is left until its lease is over");
    }
}
