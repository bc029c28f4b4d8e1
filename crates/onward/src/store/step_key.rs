//! Step keys: a piece of work that executes once over all runs.
//!
//! Owns: [`Keys`], the plain data of its verbs, and the decisions that every store takes alike.
//! Never executes anything and never waits: whoever finds a key in flight comes back later.
//!
//! A holder has a key under a lease that it renews while it works. Each hold has a token, a number
//! that rises with every new hold of the store: what a holder settles counts only under the token
//! that the key has by then. So a holder that was believed dead cannot overwrite what its successor
//! did, and an outside service that remembers the highest token it saw can refuse it too.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Answer, Conflict, Duplicates, Error, Waiter};
use crate::clock::millis;
use crate::json::Fingerprint;
use crate::limits::KEY_HELD_KEEP;
use crate::{Code, Failure, Json, RunId, Timestamp};

/// A place where step keys live: the run's own store, or another that several of them share.
///
/// Three questions are answered by every write. *Repeated after a lost answer?* The same write
/// again gives the same answer and changes nothing. *From a holder that lost its lease?*
/// `LeaseLost`, and nothing changes. *A crash before or after?* All of it is there, or none.
pub trait Keys: fmt::Debug + Send + Sync + 'static {
    /// Takes a key that is free, or says what became of it. Free is a key that nobody took, or whose
    /// time is over. A hold that was not renewed in time may look so because the clock was set
    /// forward: it is busy until a caller asks who says that it saw that before, or until
    /// [`KEY_HELD_KEEP`] is over too. A holder that comes again has it still; in a higher attempt of its
    /// run it takes it over from itself, under a new token.
    /// What comes second is counted, once for each holder.
    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer>;

    /// Renews the lease of a holder that has the key, from now on.
    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()>;

    /// Ends a hold: with a result or a failure that is kept with the key, or so that it is free.
    /// A key that its holder lost, whoever has it by now, or has settled otherwise, is left alone:
    /// `LeaseLost`, or `Ok` to one who only wanted it free.
    fn settle_key(&self, lease: KeyLease, settle: SettleKey) -> Answer<'_, ()>;

    /// Forgets a key, whatever its state, and says whether it was not free. A holder that is at work
    /// cannot settle it any more.
    fn release_key(&self, key: String) -> Answer<'_, bool>;

    /// A key, unless it is free.
    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>>;

    /// A page of the keys that are not free, by name, after `after`.
    fn step_keys(&self, after: Option<String>, limit: usize) -> Answer<'_, StepKeyPage>;

    /// Those that came second with this key, and were given its result or told to wait.
    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates>;

    /// Adds a key as it stood elsewhere, under a token that is higher than the one it had there. One
    /// that is there and else the same is passed over: `false`. One that is there, is not free and
    /// differs: `Conflict`. Those that came second are only counted.
    fn import_key(&self, key: StepKey) -> Answer<'_, bool>;

    /// Registers interest in the end of a hold, at the call and not at the first poll. A hint: look
    /// again after it, and on a timer. `None` where there are no hints.
    fn wait_key(&self, key: &str) -> Option<Waiter> {
        let _ = key;
        None
    }
}

/// A wish to have a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeKey {
    /// The key.
    pub key: String,
    /// Who would have it.
    pub holder: KeyHolder,
    /// What the work is given, as far as the caller says: with another one the key is refused.
    pub fingerprint: Option<Fingerprint>,
    /// How long the hold lasts without renewal.
    pub lease_ms: i64,
    /// The token of the hold under which this holder was counted as one that came second, when it
    /// came before.
    pub counted: Option<u64>,
    /// The token of the hold that the caller has seen expired, for longer than its holder takes to
    /// renew it by a clock that nobody sets: it is gone.
    pub seen_expired: Option<u64>,
}

/// Who has a key, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyHolder {
    /// Its name: `{run id}/{step}` for a step, an id of its own for work outside any run.
    pub id: String,
    /// The attempt of the run; 1 outside any run.
    pub attempt: u32,
    /// The host and process that it works in, for people.
    pub caller: String,
}

/// The fenced, expiring right to do the work of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLease {
    /// The key.
    pub key: String,
    /// The holder's name.
    pub holder: String,
    /// The attempt of the holder's run.
    pub attempt: u32,
    /// The fencing token: a later hold has a higher one.
    pub token: u64,
}

/// What became of a wish to have a key.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyAnswer {
    /// The caller has it: do the work.
    Held(KeyLease),
    /// The work was done, with this result.
    Done(Json),
    /// The work failed, and its failure is kept.
    Failed(Failure),
    /// Somebody else is at work.
    Busy(KeyBusy),
    /// The key was used with another input.
    OtherInput {
        /// By whom.
        holder: String,
    },
}

/// A hold of somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBusy {
    /// Whose it is.
    pub holder: String,
    /// Its token.
    pub token: u64,
    /// For how long they have had it.
    pub held_ms: i64,
    /// How long they have it yet, unless they renew it; not above zero for a hold that has expired.
    pub left_ms: i64,
}

/// The end of a hold.
#[derive(Clone, Debug, PartialEq)]
pub struct SettleKey {
    /// How it ends.
    pub end: KeyEnd,
    /// How long the result or failure is kept; `None`: until somebody releases the key.
    pub ttl_ms: Option<i64>,
}

impl SettleKey {
    /// The end that leaves nothing behind.
    pub fn free() -> Self {
        Self { end: KeyEnd::Free, ttl_ms: None }
    }

    /// The end of a hold whose work may have taken effect, nobody knows.
    pub(crate) fn interrupted(ttl_ms: Option<i64>) -> Self {
        let failure = Failure::engine(Code::Interrupted, Code::Interrupted.advice());
        Self { end: KeyEnd::Failed(failure), ttl_ms }
    }
}

/// How a hold ends.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyEnd {
    /// The work is done, with this result.
    Done(Json),
    /// The work failed, and is not to be tried again.
    Failed(Failure),
    /// The key is free for the next one.
    Free,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Its holder is at work.
    Held,
    /// Its work is done.
    Done,
    /// Its work failed, and the failure is kept.
    Failed,
}

impl KeyState {
    /// The name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            KeyState::Held => "held",
            KeyState::Done => "done",
            KeyState::Failed => "failed",
        }
    }

    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn of(text: &str) -> Option<Self> {
        [KeyState::Held, KeyState::Done, KeyState::Failed]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A step key as it stands: a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepKey {
    /// The key.
    pub key: String,
    /// Where it stands.
    pub state: KeyState,
    /// Who has it, or did the work.
    pub holder: KeyHolder,
    /// The fencing token of the hold.
    pub token: u64,
    /// What the holder said the work is given.
    #[serde(skip)]
    pub fingerprint: Option<Fingerprint>,
    /// What the work gave.
    pub result: Option<Json>,
    /// What the work failed with.
    pub failure: Option<Failure>,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// When its work ended.
    pub settled_at: Option<Timestamp>,
    /// Until when it is held without renewal, or its result is kept; `None`: until it is released.
    pub until: Option<Timestamp>,
    /// How many came second.
    pub duplicates: u64,
}

/// A page of keys, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepKeyPage {
    /// The keys.
    pub keys: Vec<StepKey>,
    /// The names of the keys on this page that cannot be read. They are not in `keys`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Whether more follow.
    pub more: bool,
}

/// What a store does about a wish to have a key.
#[derive(Debug, PartialEq)]
pub(crate) enum Taking {
    /// It is free: write it anew, under a new token.
    Fresh,
    /// The caller has it: its lease runs from now.
    Again,
    /// It is not the caller's to have. `Some`: one came second, with the same input or another.
    Refused(KeyAnswer, Option<bool>),
}

/// What a store does about the end of a hold.
#[derive(Debug, PartialEq)]
pub(crate) enum Settling {
    /// Nothing: it was done before.
    Already,
    /// Forget the key.
    Free,
    /// Keep what came of it.
    Keep(StepKey),
}

impl TakeKey {
    /// The key as it stands once this wish is granted. The store gives the token.
    pub(crate) fn fresh(&self, token: u64, now: Timestamp) -> StepKey {
        StepKey {
            key: self.key.clone(),
            state: KeyState::Held,
            holder: self.holder.clone(),
            token,
            fingerprint: self.fingerprint,
            result: None,
            failure: None,
            taken_at: now,
            settled_at: None,
            until: Some(after(now, self.lease_ms)),
            duplicates: 0,
        }
    }
}

impl StepKey {
    /// The right of whoever holds it.
    pub fn lease(&self) -> KeyLease {
        KeyLease {
            key: self.key.clone(),
            holder: self.holder.id.clone(),
            attempt: self.holder.attempt,
            token: self.token,
        }
    }

    /// Whether nobody needs it any more, so that it may be forgotten. The hold of one who is at work may
    /// look expired when the clock was set forward.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        let kept = if self.state == KeyState::Held { millis(KEY_HELD_KEEP) } else { 0 };
        self.until.is_some_and(|until| after(until, kept) <= now)
    }

    /// Whether it is not free.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }

    fn answer(&self, now: Timestamp) -> KeyAnswer {
        match (self.state, &self.result, &self.failure) {
            (KeyState::Done, Some(result), _) => KeyAnswer::Done(result.clone()),
            (KeyState::Failed, _, Some(failure)) => KeyAnswer::Failed(failure.clone()),
            _ => KeyAnswer::Busy(KeyBusy {
                holder: self.holder.id.clone(),
                token: self.token,
                held_ms: (now.as_millis() - self.taken_at.as_millis()).max(0),
                left_ms: self.until.unwrap_or(now).as_millis() - now.as_millis(),
            }),
        }
    }

    fn is_under(&self, lease: &KeyLease) -> bool {
        self.token == lease.token && self.holder.id == lease.holder
    }

    /// Whether this is what a settle with this end left.
    fn is_end(&self, end: &KeyEnd) -> bool {
        match end {
            KeyEnd::Done(json) => self.result.as_ref() == Some(json),
            KeyEnd::Failed(failure) => self.failure.as_ref() == Some(failure),
            KeyEnd::Free => false,
        }
    }
}

/// What to do about a wish to have a key, of which `row` is stored.
pub(crate) fn taking(
    row: Option<&StepKey>,
    take: &TakeKey,
    now: Timestamp,
) -> Result<Taking, Error> {
    let Some(row) = row else { return Ok(Taking::Fresh) };
    let mine = row.holder.id == take.holder.id;
    if mine && row.state == KeyState::Held && row.holder.attempt > take.holder.attempt {
        return Err(Error::LeaseLost);
    }
    let live = row.is_live(now);
    let is_seen = take.seen_expired == Some(row.token);
    let is_gone = row.state != KeyState::Held || mine || is_seen || row.is_over(now);
    if !live && is_gone {
        return Ok(Taking::Fresh);
    }
    if mine && row.state == KeyState::Held {
        let again = row.holder.attempt == take.holder.attempt;
        return Ok(if again { Taking::Again } else { Taking::Fresh });
    }
    let other = matches!((row.fingerprint, take.fingerprint), (Some(a), Some(b)) if a != b);
    // One whose hold has expired may be gone, and its input with it.
    let answer = match other && live {
        true => KeyAnswer::OtherInput { holder: row.holder.id.clone() },
        false => row.answer(now),
    };
    // One who finds what it did itself, because its answer was lost, is no duplicate.
    let counts = !mine && take.counted != Some(row.token);
    Ok(Taking::Refused(answer, counts.then_some(!other)))
}

/// What to do about the end of a hold, of which `row` is stored.
pub(crate) fn settling(
    row: Option<StepKey>,
    lease: &KeyLease,
    settle: &SettleKey,
    now: Timestamp,
) -> Result<Settling, Error> {
    let row = row.filter(|row| row.is_under(lease));
    let Some(mut row) = row else {
        let free = settle.end == KeyEnd::Free;
        return if free { Ok(Settling::Already) } else { Err(Error::LeaseLost) };
    };
    if row.state != KeyState::Held {
        let same = row.is_end(&settle.end) || settle.end == KeyEnd::Free;
        return if same { Ok(Settling::Already) } else { Err(Error::LeaseLost) };
    }
    match &settle.end {
        KeyEnd::Free => return Ok(Settling::Free),
        KeyEnd::Done(json) => (row.state, row.result) = (KeyState::Done, Some(json.clone())),
        KeyEnd::Failed(failure) => {
            (row.state, row.failure) = (KeyState::Failed, Some(failure.clone()));
        }
    }
    row.settled_at = Some(now);
    row.until = settle.ttl_ms.map(|ttl_ms| after(now, ttl_ms));
    Ok(Settling::Keep(row))
}

/// Whether to add a key that stood elsewhere, where `row` is stored.
pub(crate) fn importing(
    row: Option<&StepKey>,
    key: &StepKey,
    now: Timestamp,
) -> Result<bool, Error> {
    match row {
        Some(row) if *row == (StepKey { token: row.token, ..key.clone() }) => Ok(false),
        Some(row) if row.is_live(now) => Err(Error::Conflict(Conflict::StepKeyDiffers)),
        _ => Ok(true),
    }
}

/// Whether a lease may be renewed.
pub(crate) fn is_held(row: Option<&StepKey>, lease: &KeyLease) -> bool {
    row.is_some_and(|row| row.state == KeyState::Held && row.is_under(lease))
}

pub(crate) fn after(now: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_add(ms))
}

/// What those who wait for a key listen to: a topic of the hub is named by a run's id, and no run
/// has an id that is made of a hash.
pub(crate) fn topic(key: &str) -> RunId {
    let hash = Sha256::digest(key.as_bytes());
    RunId::from_u128(hash[..16].iter().fold(0, |bits, byte| (bits << 8) | u128::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn take(id: &str, attempt: u32) -> TakeKey {
        let holder = KeyHolder { id: id.to_owned(), attempt, caller: "test".to_owned() };
        let key = "k".to_owned();
        let (counted, seen_expired) = (None, None);
        TakeKey { key, holder, fingerprint: None, lease_ms: 10, counted, seen_expired }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_000 + ms)
    }

    #[test]
    fn a_later_attempt_takes_over_and_an_earlier_one_is_refused() {
        let row = take("run/step", 2).fresh(7, NOW);
        assert_eq!(taking(Some(&row), &take("run/step", 2), at(5)).unwrap(), Taking::Again);
        assert_eq!(taking(Some(&row), &take("run/step", 3), at(5)).unwrap(), Taking::Fresh);
        for late in [at(5), at(50)] {
            let stale = taking(Some(&row), &take("run/step", 1), late);
            assert!(matches!(stale, Err(Error::LeaseLost)), "{stale:?}");
        }
    }

    #[test]
    fn an_expired_hold_is_free_to_whoever_has_seen_that_it_stays_so() {
        let row = take("a", 1).fresh(7, NOW);
        let busy = |held_ms| {
            let busy = KeyBusy { holder: "a".to_owned(), token: 7, held_ms, left_ms: 10 - held_ms };
            Taking::Refused(KeyAnswer::Busy(busy), Some(true))
        };
        let seen = |token| TakeKey { seen_expired: Some(token), ..take("b", 1) };
        for ms in [9, 10, 5_000] {
            assert_eq!(taking(Some(&row), &take("b", 1), at(ms)).unwrap(), busy(ms));
            assert_eq!(taking(Some(&row), &seen(6), at(ms)).unwrap(), busy(ms), "of another hold");
        }
        assert_eq!(taking(Some(&row), &seen(7), at(9)).unwrap(), busy(9), "it was renewed since");
        assert_eq!(taking(Some(&row), &seen(7), at(10)).unwrap(), Taking::Fresh);
        assert_eq!(taking(Some(&row), &take("a", 1), at(10)).unwrap(), Taking::Fresh);
    }

    #[test]
    fn a_hold_that_may_be_forgotten_is_free_to_anybody() {
        let row = take("a", 1).fresh(7, NOW);
        let over = 10 + millis(KEY_HELD_KEEP);
        let early = taking(Some(&row), &take("b", 1), at(over - 1)).unwrap();
        assert!(matches!(early, Taking::Refused(KeyAnswer::Busy(_), _)), "{early:?}");
        assert_eq!(taking(Some(&row), &take("b", 1), at(over)).unwrap(), Taking::Fresh);
    }

    #[test]
    fn a_late_end_is_kept_while_nobody_took_over() {
        let row = take("a", 1).fresh(7, NOW);
        let lease = row.lease();
        let done = SettleKey { end: KeyEnd::Done(Json::stored("1")), ttl_ms: Some(5) };
        let Ok(Settling::Keep(kept)) = settling(Some(row.clone()), &lease, &done, at(100)) else {
            panic!("an expired hold that nobody took is still its holder's");
        };
        assert_eq!((kept.state, kept.until), (KeyState::Done, Some(at(105))));
        assert_eq!(settling(Some(kept), &lease, &done, at(101)).unwrap(), Settling::Already);
        let other = KeyLease { token: 8, ..lease };
        assert!(matches!(settling(Some(row), &other, &done, NOW), Err(Error::LeaseLost)));
    }
}
