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

    async fn start(self) -> Result<RunHandle<O>, Error> {
        let Self { client, run, step, input, key, .. } = self;
        let handle: RunHandle<O> = RunHandle::new(Arc::clone(&client), run);
        let input = input.transpose()?;
        let key = match key {
            None => None,
            Some(key) => {
                key.check()?;
                let input = match &input {
                    Some(input) => input.fingerprint(),
                    None => handle.look(run).await?.input.fingerprint(),
                };
                let on_conflict = OnConflict::Reject;
                let key = key.as_str().to_owned();
                Some(NewKey { key, fingerprint: input, ttl_ms: None, on_conflict, gather: None })
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
