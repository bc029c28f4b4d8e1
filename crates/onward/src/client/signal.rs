//! Sending a signal to a run.
//!
//! Owns: [`SendSignal`]. Never decides who gets it; the run does. A run that went on as another is
//! followed.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use super::Inner;
use super::steer::follow;
use crate::error::check_name;
use crate::model::step_id;
use crate::store::{NewSignal, Signalled};
use crate::{Code, Error, Json, Key, RunId};

/// A signal that is being set up; made by [`RunHandle::signal`](crate::RunHandle::signal), sent by
/// `await`.
///
/// ```
/// # use onward::{Code, Ctx, Failure, Onward, Workflow};
/// const ORDER: Workflow<u64, String> = Workflow::named("order");
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// # let worker = onward.worker().serve(ORDER, async |ctx: Ctx, _: u64| {
/// #     ctx.signal::<String>("paid").await
/// # }).start().await?;
/// let run = onward.start(ORDER, &7).await?;
/// // Sent twice with one key, it is delivered once.
/// run.signal("paid", "invoice-12").key("webhook-991").await?;
/// run.signal("paid", "invoice-12").key("webhook-991").await?;
/// assert_eq!(run.result().await?, "invoice-12");
/// // A run that has ended takes none.
/// let late = run.signal("paid", "invoice-13").await;
/// assert_eq!(late.unwrap_err().code(), Code::RunFinished);
/// # worker.shutdown().await }
/// ```
#[must_use = "a signal is sent when it is awaited"]
pub struct SendSignal {
    client: Arc<Inner>,
    run: RunId,
    name: String,
    body: Result<Json, Error>,
    key: Option<Key>,
}

impl SendSignal {
    pub(super) fn new<T: Serialize + ?Sized>(
        client: Arc<Inner>,
        run: RunId,
        name: &str,
        value: &T,
    ) -> Self {
        Self { client, run, name: name.to_owned(), body: Json::of(value), key: None }
    }

    /// Names this signal: sent again with the same key, it is delivered once. The same key with
    /// another value is refused.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn client(&self) -> &Arc<Inner> {
        &self.client
    }

    pub(super) fn new_signal(self) -> Result<NewSignal, Error> {
        check_name("signal", &self.name)?;
        if self.name.starts_with('$') {
            let about = "names of signals that begin with $ are the engine's own";
            return Err(Error::new(Code::InvalidName).about(about));
        }
        self.new_engine_signal()
    }

    /// As it is sent, whatever its name.
    pub(super) fn new_engine_signal(self) -> Result<NewSignal, Error> {
        if let Some(key) = &self.key {
            key.check()?;
        }
        let body = self.body?;
        // Without a key of the sender's every signal is one of its own; this one is the same over
        // its repeats.
        let key = match self.key {
            Some(key) => format!("={}", key.as_str()),
            None => RunId::new().to_string(),
        };
        Ok(NewSignal {
            run: self.run,
            step: step_id::signal(&self.name),
            name: self.name,
            key,
            fingerprint: body.fingerprint(),
            body,
        })
    }

    /// Sends it as `await` does, and says whether it was there already.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # const EXPENSE: Workflow<u64, String> = Workflow::named("expense");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(EXPENSE, &4200).await?;
    /// assert!(!run.signal("approved", &true).key("click-1").sent().await?.was_there);
    /// assert!(run.signal("approved", &true).key("click-1").sent().await?.was_there);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As when it is awaited.
    pub async fn sent(self) -> Result<Signalled, Error> {
        self.send().await
    }

    async fn send(self) -> Result<Signalled, Error> {
        let client = Arc::clone(&self.client);
        let new = self.new_signal()?;
        let send = |run| client.store.signal(NewSignal { run, ..new.clone() });
        follow(&client, new.run, send).await
    }
}

impl IntoFuture for SendSignal {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.send().await.map(drop) })
    }
}

impl fmt::Debug for SendSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendSignal").field("run", &self.run).field("name", &self.name).finish()
    }
}
