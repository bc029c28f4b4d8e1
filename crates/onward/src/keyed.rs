//! Work under a key: what a step and `once` do alike.
//!
//! Owns: where the keys are, how one is taken, kept and settled when answers are lost, how one
//! that is held elsewhere is waited for, and what becomes of one whose run ended without a word.
//! Never decides whose a key is; the store does.
//!
//! The result is settled with the key first, and recorded or returned after that. If the process
//! dies between the two, whoever comes next, the same run included, finds the result with the key
//! and the work is not done again. The other way round a second run could take the key of work
//! that is done.

mod expired;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::clock::millis;
use crate::driver::pauses;
use crate::limits::{KEY_LEASE, KEY_LOOK_MAX};
use crate::store::{
    self, KeyAnswer, KeyBusy, KeyHolder, KeyLease, KeyState, Keys, SettleKey, StepKey, Store,
    TakeKey, Waiter, Which,
};
use expired::{Expired, Look};

/// The shortest pause between two looks at a key that is held elsewhere.
const LOOK_MIN: Duration = Duration::from_millis(50);

/// The pause before a renewal that failed is tried again: others leave an expired hold alone for little
/// longer than the pause between two renewals.
const RENEW_AGAIN: Duration = Duration::from_secs(1);

/// Where the keys of a client are, and what all that ask from here have seen of those who have them.
#[derive(Clone)]
pub(crate) struct KeyPlace {
    at: At,
    expired: Arc<Expired>,
}

#[derive(Clone)]
enum At {
    /// In the store of its runs.
    Store(Arc<dyn Store>),
    /// Elsewhere.
    Other(Arc<dyn Keys>),
}

/// What is known of those that may hold keys.
#[derive(Clone, Copy)]
pub(crate) struct Holders<'a> {
    expired: &'a Expired,
    /// The runs that may.
    runs: &'a dyn Store,
    /// Whether there are no others. Keys that are elsewhere may be shared with programs that have
    /// stores of their own.
    all: bool,
}

impl KeyPlace {
    /// The keys of a store, whose runs hold them.
    pub(crate) fn in_store(store: Arc<dyn Store>) -> Self {
        Self { at: At::Store(store), expired: Arc::default() }
    }

    /// Keys that are elsewhere.
    pub(crate) fn elsewhere(keys: Arc<dyn Keys>) -> Self {
        Self { at: At::Other(keys), expired: Arc::default() }
    }

    /// Who may hold keys here, as far as this program knows: the runs of its store.
    pub(crate) fn holders<'a>(&'a self, runs: &'a dyn Store) -> Holders<'a> {
        let here = |keys: &Arc<dyn Store>| std::ptr::addr_eq(Arc::as_ptr(keys), runs);
        let all = matches!(&self.at, At::Store(keys) if here(keys));
        Holders { expired: &self.expired, runs, all }
    }

    /// The keys, if the store keeps any.
    pub(crate) fn keys(&self) -> Option<&dyn Keys> {
        match &self.at {
            At::Store(store) => store.keys(),
            At::Other(keys) => Some(keys.as_ref()),
        }
    }
}

/// A hold is renewed for as long as this lives.
#[derive(Debug)]
pub(crate) struct Renewal(AbortHandle);

impl Renewal {
    /// Renews a hold from now on, three times in [`KEY_LEASE`], each time for as long as it was
    /// taken for: the hold of a step that must not execute twice is not made a short one. One that fails
    /// is tried again soon.
    pub(crate) fn start(place: KeyPlace, lease: KeyLease, lease_ms: i64) -> Self {
        let task = tokio::spawn(async move {
            let mut pause = KEY_LEASE / 3;
            loop {
                tokio::time::sleep(pause).await;
                let Some(keys) = place.keys() else { return };
                pause = match keys.renew_key(lease.clone(), lease_ms).await {
                    // Its end finds out what became of the key.
                    Err(store::Error::LeaseLost) => {
                        tracing::warn!(key = lease.key, "the hold on a key is lost");
                        return;
                    }
                    Err(error) => {
                        tracing::warn!(key = lease.key, %error, "a key is not renewed");
                        RENEW_AGAIN
                    }
                    Ok(()) => KEY_LEASE / 3,
                };
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How long to leave a key alone that is held elsewhere: as long as it has been held, so that the
/// looks become rarer, but not beyond the end of its lease.
pub(crate) fn look_in(busy: &KeyBusy) -> Duration {
    let ms = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let pause = ms(busy.held_ms).clamp(LOOK_MIN, KEY_LOOK_MAX);
    pause.min(ms(busy.left_ms).max(LOOK_MIN))
}

/// Asks for a key once. What was seen of its hold counts only from one answer to the next: where there is
/// none, its holder may have had none either.
pub(crate) async fn ask(
    keys: &dyn Keys,
    holders: Holders<'_>,
    take: TakeKey,
) -> Result<KeyAnswer, store::Error> {
    let key = take.key.clone();
    let answer = keys.take_key(take).await;
    if !matches!(answer, Ok(KeyAnswer::Busy(_))) {
        holders.expired.forget(&key);
    }
    answer
}

/// Takes a key, again for as long as the outcome is unknown, and waits for one that is held
/// elsewhere for as long as the patience lasts.
pub(crate) async fn take(
    keys: &dyn Keys,
    holders: Holders<'_>,
    mut take: TakeKey,
    patience: Duration,
) -> Result<KeyAnswer, store::Error> {
    let begun = Instant::now();
    let mut pauses = pauses();
    let mut expired: Option<Look> = None;
    // Somebody who listens looks once more: the hold may have ended before.
    let mut listening: Option<Option<Waiter>> = None;
    loop {
        match ask(keys, holders, take.clone()).await {
            Ok(KeyAnswer::Busy(busy)) if end_orphan(keys, holders, &take.key, &busy).await => {}
            Ok(KeyAnswer::Busy(busy)) => {
                take.counted = Some(busy.token);
                let left = patience.saturating_sub(begun.elapsed());
                // Who comes back later adds a second to what was seen: this is not left to another look.
                expired = holders.expired.look(&take.key, &busy, expired);
                let pause = match expired {
                    None if left.is_zero() => return Ok(KeyAnswer::Busy(busy)),
                    None => look_in(&busy).min(left),
                    Some(look) => look.pause(),
                };
                take.seen_expired = pause.is_zero().then_some(busy.token);
                if let Some(waiter) = listening.take() {
                    hint(waiter, pause).await;
                }
                listening = Some(keys.wait_key(&take.key));
            }
            Err(store::Error::Unavailable(outage, source)) => {
                tracing::warn!(key = take.key, ?outage, %source, "a key is not answered for yet");
                (expired, take.seen_expired) = (None, None);
                tokio::time::sleep(pauses.next().unwrap_or(KEY_LOOK_MAX)).await;
            }
            answer => return answer,
        }
    }
}

/// Settles the key of a step that must not execute twice, and whose run has ended without saying
/// what became of it: its process died, and the run was cancelled before another took it over. Its
/// own run would have said `interrupted`, and so does this. Says whether to look again at once.
async fn end_orphan(keys: &dyn Keys, holders: Holders<'_>, key: &str, busy: &KeyBusy) -> bool {
    // Any other hold is over soon unless somebody lives who renews it.
    if busy.left_ms <= millis(KEY_LEASE) {
        return false;
    }
    let ended = try_end_orphan(keys, holders, key, busy).await;
    // Who waits for the key looks again later.
    ended.inspect_err(|error| tracing::warn!(key, %error, "a key stays held")).unwrap_or(false)
}

async fn try_end_orphan(
    keys: &dyn Keys,
    holders: Holders<'_>,
    key: &str,
    busy: &KeyBusy,
) -> Result<bool, store::Error> {
    let Some(run) = busy.holder.split('/').next().and_then(|run| run.parse().ok()) else {
        return Ok(false);
    };
    // One that is not there was pruned, or is of another program.
    let found = holders.runs.get(Which::Id(run)).await?;
    if !found.map_or(holders.all, |run| run.state.is_final()) {
        return Ok(false);
    }
    let held = keys.step_key(key.to_owned()).await?;
    let still = |held: &StepKey| held.token == busy.token && held.state == KeyState::Held;
    let Some(held) = held.filter(still) else { return Ok(false) };
    let KeyHolder { id: holder, attempt, .. } = held.holder;
    let lease = KeyLease { key: key.to_owned(), holder, attempt, token: held.token };
    match keys.settle_key(lease, SettleKey::interrupted(None)).await {
        Ok(()) => Ok(true),
        Err(store::Error::LeaseLost) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits until the hold may have ended.
async fn hint(waiter: Option<Waiter>, pause: Duration) {
    match waiter {
        Some(waiter) => drop(tokio::time::timeout(pause, waiter).await),
        None => tokio::time::sleep(pause).await,
    }
}

/// What became of the end of a hold.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It is kept with the key.
    Own,
    /// The hold was lost, and the key says otherwise by now.
    Other(KeyAnswer),
}

/// Settles a key, again for as long as the outcome is unknown. A hold that was lost is taken again:
/// if the key is free the end counts after all, and otherwise what others did counts. `wish`: how
/// the key was taken.
pub(crate) async fn settle(
    keys: &dyn Keys,
    holders: Holders<'_>,
    mut lease: KeyLease,
    settle: SettleKey,
    wish: &TakeKey,
) -> Result<Kept, store::Error> {
    let mut pauses = pauses();
    loop {
        match keys.settle_key(lease.clone(), settle.clone()).await {
            Ok(()) => return Ok(Kept::Own),
            Err(store::Error::Unavailable(outage, source)) => {
                tracing::warn!(key = lease.key, ?outage, %source, "a key is not settled yet");
                tokio::time::sleep(pauses.next().unwrap_or(KEY_LOOK_MAX)).await;
            }
            Err(store::Error::LeaseLost) => {
                match take(keys, holders, wish.clone(), Duration::MAX).await? {
                    KeyAnswer::Held(again) => lease = again,
                    answer => return Ok(Kept::Other(answer)),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
