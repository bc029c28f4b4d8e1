//! Looking at step keys, and releasing them.
//!
//! Owns: the client's way to the keys, wherever they are. Never takes one; steps and `once` do.

use super::{Once, Onward};
use crate::keyed::KeyPlace;
use crate::store::{KeyHolder, KeyState, Keys, StepKey, StepKeyPage};
use crate::{Code, Duplicates, Error, Key, Run, Waits};

impl Onward {
    /// A piece of work outside any workflow that is done once for its key, by whoever comes first.
    ///
    /// ```
    /// use onward::{Failure, Onward};
    /// use std::time::Duration;
    ///
    /// # async fn send_mail(_: &str) -> Result<String, std::io::Error> { Ok("queued".into()) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// for _ in 0..2 {
    ///     let sent = onward.once("welcome-7").ttl(day).run(async || send_mail("ada").await).await?;
    ///     assert_eq!(sent, "queued"); // the second time from the key
    /// }
    /// assert_eq!(onward.step_key("welcome-7").await?.unwrap().duplicates, 1);
    /// # Ok(()) }
    /// ```
    pub fn once(&self, key: impl Into<Key>) -> Once {
        Once::new(std::sync::Arc::clone(&self.inner), key.into())
    }

    /// A step key as it stands: who has it or did its work, and what came of it. `None`: it is free.
    ///
    /// # Errors
    /// `keys_unsupported`, or that the store does not answer.
    pub async fn step_key(&self, key: impl Into<Key>) -> Result<Option<StepKey>, Error> {
        Ok(self.keys()?.step_key(key.into().to_string()).await?)
    }

    /// A page of the step keys that are not free, by name, after `after`.
    ///
    /// ```
    /// # use onward::{Failure, Onward};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # onward.once("welcome-7").run(async || Ok::<_, Failure>(1)).await?;
    /// let page = onward.step_keys(None, 100).await?;
    /// assert_eq!(page.keys[0].key, "welcome-7");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `keys_unsupported`, or that the store does not answer.
    pub async fn step_keys(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<StepKeyPage, Error> {
        Ok(self.keys()?.step_keys(after, limit).await?)
    }

    /// Those that came second with a step key: when, from where, and whether with the same input.
    ///
    /// # Errors
    /// `keys_unsupported`, or that the store does not answer.
    pub async fn key_duplicates(&self, key: impl Into<Key>) -> Result<Duplicates, Error> {
        Ok(self.keys()?.key_duplicates(key.into().to_string()).await?)
    }

    /// Forgets a step key, so that the next step with it executes again; says whether it was not
    /// free. A holder that is at work goes on, and finds that its key is another's.
    ///
    /// ```
    /// # use onward::{Failure, Onward};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # onward.once("welcome-7").run(async || Ok::<_, Failure>(1)).await?;
    /// assert!(onward.release_key("welcome-7").await?);
    /// assert!(onward.step_key("welcome-7").await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `keys_unsupported`, or that the store does not answer.
    pub async fn release_key(&self, key: impl Into<Key>) -> Result<bool, Error> {
        Ok(self.keys()?.release_key(key.into().to_string()).await?)
    }

    /// Who has the step key that this run waits for; `None` where it waits for none, or where that cannot
    /// be said.
    pub async fn key_holder(&self, run: &Run) -> Option<KeyHolder> {
        holder(&self.inner.keys, run).await
    }

    fn keys(&self) -> Result<&dyn Keys, Error> {
        self.inner.keys.keys().ok_or_else(|| Error::new(Code::KeysUnsupported))
    }
}

/// Who has the key that a run waits for. Keys that do not answer only leave the sentence without a name.
pub(super) async fn holder(keys: &KeyPlace, run: &Run) -> Option<KeyHolder> {
    let Some(Waits::Key { key, .. }) = &run.waits_for else { return None };
    let found = keys.keys()?.step_key(key.clone()).await.ok()??;
    (found.state == KeyState::Held).then_some(found.holder)
}
