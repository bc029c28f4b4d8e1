//! Step keys whose results are encoded, wherever they are kept.
//!
//! Owns: [`CodedKeys`]. Never changes a key, a holder or a token.

use std::fmt;
use std::sync::Arc;

use super::pass::{Opening, Sealing};
use super::{refused, visit};
use crate::codec::Coding;
use crate::keyed::KeyPlace;
use crate::store::{
    Answer, Duplicates, Error, KeyAnswer, KeyLease, Keys, SettleKey, StepKey, StepKeyPage, TakeKey,
    Waiter,
};

/// A place of step keys around another, which encodes what is kept with them.
///
/// [`Open::codec`](crate::Open::codec) and [`Onward::with_keys`](crate::Onward::with_keys) make one
/// where it is needed.
pub struct CodedKeys {
    place: KeyPlace,
    coding: Arc<Coding>,
}

impl CodedKeys {
    /// Keys that keep in `inner` what these codecs make of their results and failures.
    pub fn around(inner: Arc<dyn Keys>, coding: Coding) -> Self {
        Self::new(KeyPlace::elsewhere(inner), Arc::new(coding))
    }

    pub(crate) fn new(place: KeyPlace, coding: Arc<Coding>) -> Self {
        Self { place, coding }
    }

    fn inner(&self) -> Result<&dyn Keys, Error> {
        self.place.keys().ok_or(Error::NotFound)
    }

    fn with<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Keys) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.inner() {
            Ok(keys) => verb(keys),
            Err(error) => refused(error),
        }
    }

    async fn take(&self, wish: TakeKey) -> Result<KeyAnswer, Error> {
        let (keys, plain) = (self.inner()?, wish.fingerprint);
        let mut sealed = wish;
        let mut sealing = Sealing::new(&self.coding);
        visit::take_key(&mut sealed, &mut sealing);
        sealing.done()?;
        let mut answer = keys.take_key(sealed.clone()).await?;
        if matches!(answer, KeyAnswer::OtherInput { .. }) && sealed.fingerprint != plain {
            // It may have been used before there was a codec.
            answer = keys.take_key(TakeKey { fingerprint: plain, ..sealed.clone() }).await?;
        }
        let mut opening = Opening::new(&self.coding);
        visit::key_answer(&sealed.key, &mut answer, &mut opening);
        opening.done()?;
        Ok(answer)
    }

    /// A key for people.
    fn open(&self, mut key: StepKey) -> StepKey {
        visit::step_key(&mut key, &mut Opening::new(&self.coding));
        key
    }
}

impl Keys for CodedKeys {
    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer> {
        Box::pin(self.take(take))
    }

    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()> {
        self.with(|keys| keys.renew_key(lease, lease_ms))
    }

    fn settle_key(&self, lease: KeyLease, mut settle: SettleKey) -> Answer<'_, ()> {
        let mut sealing = Sealing::new(&self.coding);
        visit::settle_key(&lease.key, &mut settle, &mut sealing);
        match sealing.done() {
            Ok(()) => self.with(|keys| keys.settle_key(lease, settle)),
            Err(error) => refused(error),
        }
    }

    fn release_key(&self, key: String) -> Answer<'_, bool> {
        self.with(|keys| keys.release_key(key))
    }

    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>> {
        Box::pin(async move {
            let found = self.inner()?.step_key(key).await?;
            Ok(found.map(|key| self.open(key)))
        })
    }

    fn step_keys(&self, after: Option<String>, limit: usize) -> Answer<'_, StepKeyPage> {
        Box::pin(async move {
            let StepKeyPage { keys, unreadable, more } =
                self.inner()?.step_keys(after, limit).await?;
            let keys = keys.into_iter().map(|key| self.open(key)).collect();
            Ok(StepKeyPage { keys, unreadable, more })
        })
    }

    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates> {
        self.with(|keys| keys.key_duplicates(key))
    }

    fn import_key(&self, mut key: StepKey) -> Answer<'_, bool> {
        let mut sealing = Sealing::new(&self.coding);
        visit::step_key(&mut key, &mut sealing);
        match sealing.done() {
            Ok(()) => self.with(|keys| keys.import_key(key)),
            Err(error) => refused(error),
        }
    }

    fn wait_key(&self, key: &str) -> Option<Waiter> {
        self.place.keys()?.wait_key(key)
    }
}

impl fmt::Debug for CodedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("CodedKeys");
        all.field("inner", &self.place.keys()).field("codecs", &self.coding).finish()
    }
}
