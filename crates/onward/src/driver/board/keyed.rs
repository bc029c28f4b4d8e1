//! Steps with a key, on the board.
//!
//! Owns: what steps ask the driver to do about their keys, and the holds that they give up by being
//! dropped. Never takes or settles a key; the driver does.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::{Board, LeafId, Phase};
use crate::Waits;
use crate::keyed::Renewal;
use crate::store::{KeyAnswer, KeyHolder, KeyLease, SettleKey, TakeKey};

/// Something that a step wants done about its key. The step counts as executing meanwhile.
pub(crate) struct KeyAsk {
    pub(crate) leaf: LeafId,
    pub(crate) wish: TakeKey,
    /// How its hold ends; `None`: it wants to have the key.
    pub(crate) end: Option<(KeyLease, SettleKey)>,
    /// What the key is to be if the step is dropped before it is told that it has it.
    pub(crate) dropped: SettleKey,
}

/// What a step is told of its key.
pub(crate) enum KeyTold {
    /// It has the key.
    Held(Hold),
    /// The key has this to say instead, which is not that it is held.
    Answer(KeyAnswer),
    /// What the step settled is kept.
    Kept,
    /// The store keeps no keys.
    Unsupported,
}

/// A step's hold on its key. Dropped, the key is given up: it is free, or what the step said that it
/// is from then on.
pub(crate) struct Hold {
    lease: Option<KeyLease>,
    dropped: SettleKey,
    given_up: Arc<GivenUp>,
    _renewal: Renewal,
}

/// The holds of a run that were given up, and what their keys are to be.
#[derive(Default)]
pub(crate) struct GivenUp(Mutex<Vec<(KeyLease, SettleKey)>>);

impl Hold {
    pub(crate) fn new(
        board: &Board,
        lease: KeyLease,
        dropped: SettleKey,
        renewal: Renewal,
    ) -> Self {
        let given_up = Arc::clone(&board.given_up);
        Self { lease: Some(lease), dropped, given_up, _renewal: renewal }
    }

    /// What the key is to be if the step is dropped from now on.
    pub(crate) fn if_dropped(&mut self, end: SettleKey) {
        self.dropped = end;
    }

    /// The fencing token.
    pub(crate) fn token(&self) -> Option<u64> {
        self.lease.as_ref().map(|lease| lease.token)
    }

    /// Ends the renewal; the key is to be settled by the caller.
    pub(crate) fn end(mut self) -> Option<KeyLease> {
        self.lease.take()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let end = std::mem::replace(&mut self.dropped, SettleKey::free());
            self.given_up.0.lock().unwrap_or_else(PoisonError::into_inner).push((lease, end));
        }
    }
}

impl Board {
    /// How a step of this run is named as the holder of a key.
    pub(crate) fn key_holder(&self, step: &str) -> KeyHolder {
        static PLACE: OnceLock<String> = OnceLock::new();
        let caller = PLACE.get_or_init(crate::worker::place).clone();
        KeyHolder { id: format!("{}/{step}", self.run), attempt: self.attempt, caller }
    }

    /// Hands something to the driver to be done about a key.
    pub(crate) fn ask_key(&self, ask: KeyAsk) {
        self.lock().key_asks.push(ask);
    }

    /// What is to be done about keys.
    pub(crate) fn take_key_asks(&self) -> Vec<KeyAsk> {
        std::mem::take(&mut self.lock().key_asks)
    }

    /// The holds that were given up since the last look.
    pub(crate) fn take_given_up(&self) -> Vec<(KeyLease, SettleKey)> {
        std::mem::take(&mut self.given_up.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells a step of its key. One that was dropped gives up what it would have had.
    pub(crate) fn key_told(&self, id: LeafId, told: KeyTold) {
        let mut inner = self.lock();
        let Some(leaf) = inner.leaves.get_mut(id) else { return };
        leaf.key = Some(told);
        let waker = leaf.waker.clone();
        drop(inner);
        waker.wake();
    }

    /// Lets a step look at its key again later; it is told to begin then.
    pub(crate) fn pause_for_key(&self, id: LeafId, key: &str, pause: Duration) {
        let until = self.store.clock().now() + pause;
        self.pause(id, until);
        if let Some(leaf) = self.lock().leaves.get_mut(id)
            && matches!(leaf.phase(), Phase::Pausing(_))
        {
            let step = leaf.step.to_string();
            leaf.waits = Some(Waits::Key { step, key: key.to_owned() });
        }
    }
}
