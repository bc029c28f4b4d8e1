//! Forking a run.
//!
//! Owns: [`ForkRun`]. Never decides what is copied; the store does, by its rules.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use super::handle::RunHandle;
use super::{Inner, steer};
use crate::driver::past::listed;
use crate::store::steer::is_forked_at;
use crate::store::{Conflict, Error as StoreError, Fork, NewKey};
use crate::{Code, Error, Json, Key, OnConflict, RunId};

/// A run that is being forked; made by [`RunHandle::fork`](crate::RunHandle::fork).
#[must_use = "a run is forked when it is awaited"]
pub struct ForkRun<O> {
    client: Arc<Inner>,
    run: RunId,
    step: String,
    input: Option<Result<Json, Error>>,
    key: Option<Key>,
    output: PhantomData<fn() -> O>,
}

impl<O> ForkRun<O> {
    pub(super) fn new(client: Arc<Inner>, run: RunId, step: String) -> Self {
        Self { client, run, step, input: None, key: None, output: PhantomData }
    }

    /// Another input than that of the run. The records that are copied stay as they are: what the
    /// function does with them and the new input is up to it.
    pub fn input<I: Serialize + ?Sized>(mut self, input: &I) -> Self {
        self.input = Some(Json::of(input));
        self
    }

    /// The caller's name for the new run. A key that is in use is refused.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Forks it as `await` does, but for a key that this very fork was made with before: then it gives
    /// that run, and says so. With another input, from another step or of another run it is refused.
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Onward, Workflow};
    /// # const QUOTE: Workflow<u32, u32> = Workflow::named("quote");
    /// # async fn quote(ctx: Ctx, _: u32) -> Result<u32, Failure> {
    /// #     ctx.step("ask", async |_| Ok::<_, Failure>(200)).await
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let worker = onward.worker().serve(QUOTE, quote).start().await?;
    /// # let run = onward.start(QUOTE, &10).await?;
    /// # run.result().await?;
    /// let (fork, was_there) = run.fork("ask").key("again-7").forked().await?;
    /// assert!(!was_there);
    /// let (same, was_there) = run.fork("ask").key("again-7").forked().await?;
    /// assert_eq!((same.id(), was_there), (fork.id(), true));
    /// # worker.shutdown().await }
    /// ```
    ///
    /// # Errors
    /// As when it is awaited.
    pub async fn forked(self) -> Result<(RunHandle<O>, bool), Error> {
        let handle: RunHandle<O> = RunHandle::new(Arc::clone(&self.client), self.run);
        let step = self.step.clone();
        // One that cannot be written as JSON is refused below.
        let input = self.input.as_ref().and_then(|input| input.as_ref().ok()).cloned();
        match self.start().await {
            Ok(forked) => Ok((forked, false)),
            Err(error) if error.code() == Code::KeyTaken => {
                let Some(holder) = error.run() else { return Err(error) };
                match is_same(&handle, holder, &step, input.as_ref()).await? {
                    true => Ok((RunHandle::new(Arc::clone(&handle.client), holder), true)),
                    false => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn start(self) -> Result<RunHandle<O>, Error> {
        let Self { client, run, step, input, key, .. } = self;
        let handle: RunHandle<O> = RunHandle::new(Arc::clone(&client), run);
        let input = input.transpose()?;
        let key = match key {
            None => None,
            Some(key) => {
                key.check()?;
                let fingerprint = input_of(&handle, input.as_ref()).await?.fingerprint();
                let (key, on_conflict) = (key.as_str().to_owned(), OnConflict::Reject);
                Some(NewKey { key, fingerprint, ttl_ms: None, on_conflict, gather: None })
            }
        };
        let fork = Fork { id: RunId::new(), run, step: step.clone(), input, key, rewritten: None };
        match steer::steer(&client)?.fork(fork).await {
            Ok(forked) => Ok(RunHandle::new(Arc::clone(&client), forked.id)),
            Err(StoreError::Conflict(Conflict::NoSuchStep { .. })) => {
                Err(no_such_step(&handle, &step).await?)
            }
            // The run that has the key, or the one that is forked.
            Err(error @ StoreError::Conflict(_)) => Err(Error::from(error)),
            Err(error) => Err(Error::from(error).of_run(run)),
        }
    }
}

/// The input of a fork: the one that is given, or that of the run.
async fn input_of<O>(handle: &RunHandle<O>, given: Option<&Json>) -> Result<Json, Error> {
    match given {
        Some(input) => Ok(input.clone()),
        None => Ok(handle.look(handle.id()).await?.input),
    }
}

/// Whether the run that has the key of a fork is that fork.
async fn is_same<O>(
    handle: &RunHandle<O>,
    holder: RunId,
    step: &str,
    input: Option<&Json>,
) -> Result<bool, Error> {
    let fork = handle.look(holder).await?;
    let wanted = input_of(handle, input).await?;
    if fork.forked_from != Some(handle.id()) || fork.input.fingerprint() != wanted.fingerprint() {
        return Ok(false);
    }
    let forked: RunHandle<O> = RunHandle::new(Arc::clone(&handle.client), holder);
    let (history, source) = (forked.history().await?, handle.history().await?);
    Ok(is_forked_at(&history, fork.created_at, (handle.id(), source), step))
}

/// The error that names the steps that are there.
async fn no_such_step<O>(handle: &RunHandle<O>, step: &str) -> Result<Error, Error> {
    let mut steps: Vec<String> = Vec::new();
    for record in handle.history().await? {
        if record.voided_at.is_none() && !steps.contains(&record.step) {
            steps.push(record.step);
        }
    }
    let about = match steps.is_empty() {
        true => format!("{step:?}; it has no records"),
        false => format!("{step:?}; it has {}", listed(&steps)),
    };
    Ok(Error::new(Code::StepNotFound).of_run(handle.id()).about(about))
}

impl<O: 'static> IntoFuture for ForkRun<O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl<O> fmt::Debug for ForkRun<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkRun").field("run", &self.run).field("step", &self.step).finish()
    }
}
