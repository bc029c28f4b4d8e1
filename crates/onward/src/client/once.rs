//! `once`: an idempotency key around one piece of work, outside any workflow.
//!
//! Owns: [`Once`], its hold while the body executes, and what is returned. Never records a run: the
//! key is all that is kept.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

use super::Inner;
use crate::clock::millis;
use crate::ctx::recordable;
use crate::json::Fingerprint;
use crate::keyed::{self, Kept, KeyPlace, Renewal};
use crate::limits::{DURATION_MAX, KEY_LEASE};
use crate::model::step_id;
use crate::store::{KeyAnswer, KeyEnd, KeyHolder, KeyLease, SettleKey, TakeKey};
use crate::{Code, Error, Failure, Json, Key, Uuid};

/// A piece of work under a key, being set up; made by [`Onward::once`](crate::Onward::once).
#[must_use = "nothing happens until it is run"]
pub struct Once {
    client: Arc<Inner>,
    key: Key,
    ttl: Option<Duration>,
    keep_failure: bool,
    fingerprint: Option<Fingerprint>,
    refused: Option<Error>,
}

/// The hold on a key, as its work sees it.
///
/// ```
/// # use onward::{Failure, Onward};
/// # async fn charge(_key: &str, _fence: u64) -> Result<u64, std::io::Error> { Ok(1) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// let once = onward.once("charge-order-7");
/// once.run_with(async |held| charge(held.id(), held.fence()).await).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Held {
    id: Arc<str>,
    fence: u64,
}

impl Held {
    /// What to hand on as the idempotency key: it derives from the key, and is the same for whoever
    /// does the work.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The fencing token, which rises with every hold: an outside system that remembers the highest
    /// it saw can refuse a holder that was believed dead.
    pub fn fence(&self) -> u64 {
        self.fence
    }
}

impl Once {
    pub(super) fn new(client: Arc<Inner>, key: Key) -> Self {
        let refused = key.check().err();
        Self { client, key, ttl: None, keep_failure: false, fingerprint: None, refused }
    }

    /// How long the result is kept, from when it is there; unless set, until the key is released.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl.min(DURATION_MAX));
        self
    }

    /// Keeps a failure as a result is kept: whoever comes with the key fails alike, without
    /// executing. Otherwise a failure frees the key.
    pub fn keep_failure(mut self) -> Self {
        self.keep_failure = true;
        self
    }

    /// What the work is given: the key with another input is refused as `key_conflict`.
    ///
    /// ```
    /// # use onward::{Code, Failure, Onward};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let charge = |cents: u64| onward.once("charge-7").fingerprint(&cents).run(async move || {
    ///     Ok::<_, Failure>(format!("charged {cents}"))
    /// });
    /// assert_eq!(charge(500).await?, "charged 500");
    /// assert_eq!(charge(600).await.unwrap_err().code(), Code::KeyConflict);
    /// # Ok(()) }
    /// ```
    pub fn fingerprint<I: Serialize + ?Sized>(mut self, of: &I) -> Self {
        match Json::of(of) {
            Ok(json) => self.fingerprint = Some(json.fingerprint()),
            Err(error) => self.refused = self.refused.or(Some(error)),
        }
        self
    }

    /// Executes the body, unless the key says what came of it before; waits while another executes
    /// it. What is returned is what is kept.
    ///
    /// Dropped while the body executes, it frees the key; so does a panic. A process that dies
    /// keeps it for [`KEY_LEASE`], and for [`KEY_EXPIRED_WAIT`](crate::limits::KEY_EXPIRED_WAIT) more
    /// while others ask for it. The body may have taken effect by then: it executes at least once, and
    /// after that not again.
    ///
    /// # Errors
    /// `key_failed` with what the body failed with, `key_conflict`, `type_mismatch` when the kept
    /// result is of another type, or why the store does not answer.
    pub async fn run<T, E, F, Fut>(self, body: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.run_with(|_| body()).await
    }

    /// As [`run`](Once::run), with a body that is given its hold.
    ///
    /// # Errors
    /// As [`run`](Once::run).
    pub async fn run_with<T, E, F, Fut>(mut self, body: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let place = self.client.keys.clone();
        let keys = place.keys().ok_or_else(|| Error::new(Code::KeysUnsupported))?;
        let (holders, wish) = (place.holders(self.client.store.as_ref()), self.wish());
        let lease = match keyed::ask(keys, holders, wish.clone()).await? {
            KeyAnswer::Busy(busy) => {
                let counted = TakeKey { counted: Some(busy.token), ..wish.clone() };
                keyed::take(keys, holders, counted, Duration::MAX).await?
            }
            answer => answer,
        };
        let KeyAnswer::Held(lease) = lease else { return self.told(lease) };
        let id = step_id::of_key(self.key.as_str()).into();
        let held = Held { id, fence: lease.token };
        let guard = Guard::new(place.clone(), lease);
        let done = body(held).await.map_err(Into::into);
        let stored = done.and_then(|value| recordable(&value));
        let end = match &stored {
            Ok((_, json)) => KeyEnd::Done(json.clone()),
            Err(failure) if self.keep_failure => KeyEnd::Failed(failure.clone()),
            Err(_) => KeyEnd::Free,
        };
        let settle = SettleKey { end, ttl_ms: self.ttl.map(millis) };
        match keyed::settle(keys, holders, guard.lease.clone(), settle, &wish).await? {
            Kept::Own => {
                guard.settled();
                stored.map(|(value, _)| value).map_err(|failure| self.failed(failure))
            }
            Kept::Other(answer) => self.told(answer),
        }
    }

    fn wish(&self) -> TakeKey {
        let id = format!("once/{}", Uuid::now());
        TakeKey {
            key: self.key.to_string(),
            holder: KeyHolder { id, attempt: 1, caller: self.client.caller.clone() },
            fingerprint: self.fingerprint,
            lease_ms: millis(KEY_LEASE),
            counted: None,
            seen_expired: None,
        }
    }

    /// What the key says came of the work.
    fn told<T: DeserializeOwned>(&self, answer: KeyAnswer) -> Result<T, Error> {
        match answer {
            KeyAnswer::Done(json) => json.read(),
            KeyAnswer::Failed(failure) => Err(self.failed(failure)),
            KeyAnswer::OtherInput { holder } => {
                let about = format!("{:?} is of {holder}", self.key);
                Err(Error::new(Code::KeyConflict).about(about))
            }
            KeyAnswer::Busy(_) | KeyAnswer::Held(_) => Err(Error::new(Code::LeaseLost)),
        }
    }

    fn failed(&self, failure: Failure) -> Error {
        Error::key_failed(&self.key, failure)
    }
}

/// Keeps the hold while the body executes. Dropped before it is settled, it frees the key.
struct Guard {
    place: KeyPlace,
    lease: KeyLease,
    settled: bool,
    _renewal: Renewal,
}

impl Guard {
    fn new(place: KeyPlace, lease: KeyLease) -> Self {
        let _renewal = Renewal::start(place.clone(), lease.clone(), millis(KEY_LEASE));
        Self { place, lease, settled: false, _renewal }
    }

    fn settled(mut self) {
        self.settled = true;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without a runtime the key is free when its lease is over.
        if !self.settled
            && let Ok(runtime) = Handle::try_current()
        {
            let (place, lease) = (self.place.clone(), self.lease.clone());
            runtime.spawn(async move {
                let Some(keys) = place.keys() else { return };
                let key = lease.key.clone();
                if let Err(error) = keys.settle_key(lease, SettleKey::free()).await {
                    tracing::warn!(key, %error, "a key is left until its lease is over");
                }
            });
        }
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("key", &self.key).finish()
    }
}
