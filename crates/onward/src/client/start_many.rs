//! Starting many runs: a backfill.
//!
//! Owns: [`StartMany`]: how items become batches, and what is counted. Never holds more than one
//! batch in memory, and never waits for a slow stream while it has items to start.

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;

use super::Inner;
use super::start::{StartOptions, refused, start_options};
use crate::clock::millis;
use crate::limits::{REFUSALS_KEPT_MAX, START_BATCH_MAX};
use crate::store::{NewRun, StartAt, StartedHow};
use crate::upkeep::cascade;
use crate::{Error, Json, Key, OnConflict, Timestamp};

/// Bytes of input in one batch, so that large items do not add up in memory.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Many runs that are being set up; made by [`Onward::start_many`](crate::Onward::start_many).
#[must_use = "runs are started when it is awaited"]
pub struct StartMany<I> {
    client: Arc<Inner>,
    workflow: String,
    options: StartOptions,
    items: Items<I>,
    key: Option<KeyOf<I>>,
    on_progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

/// Makes the key of an item.
type KeyOf<I> = Box<dyn Fn(&I) -> Key + Send>;

enum Items<I> {
    Iter(Box<dyn Iterator<Item = I> + Send>),
    Stream(Pin<Box<dyn Stream<Item = I> + Send>>),
    /// A source that has said that nothing follows is not asked again.
    Ended,
}

/// How far a [`StartMany`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Items that are done with: started, found or refused.
    pub items: u64,
    /// Runs that are new, or go on after they had failed.
    pub started: u64,
    /// Items whose run was there already.
    pub existing: u64,
    /// Items that were refused.
    pub refused: u64,
}

/// What a [`StartMany`] did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct StartedMany {
    /// Runs that are new, or go on after they had failed.
    pub started: u64,
    /// Items whose run was there already.
    pub existing: u64,
    /// Items that were refused, as with another input for a known key.
    pub refused: u64,
    /// The first of the refused items.
    pub refusals: Vec<Refusal>,
}

/// An item that was refused.
#[derive(Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The item's place, from 0.
    pub item: u64,
    /// Why.
    pub error: Error,
}

impl<I: Serialize + Send + 'static> StartMany<I> {
    pub(super) fn of_iter(
        client: Arc<Inner>,
        workflow: &str,
        items: impl Iterator<Item = I> + Send + 'static,
    ) -> Self {
        Self::new(client, workflow, Items::Iter(Box::new(items)))
    }

    pub(super) fn of_stream(
        client: Arc<Inner>,
        workflow: &str,
        items: impl Stream<Item = I> + Send + 'static,
    ) -> Self {
        Self::new(client, workflow, Items::Stream(Box::pin(items)))
    }

    fn new(client: Arc<Inner>, workflow: &str, items: Items<I>) -> Self {
        let options = StartOptions::default();
        let workflow = workflow.to_owned();
        Self { client, workflow, options, items, key: None, on_progress: None }
    }

    /// The key of each item. Without one, doing it again starts everything again.
    pub fn key<K: Into<Key>>(mut self, key: impl Fn(&I) -> K + Send + 'static) -> Self {
        self.key = Some(Box::new(move |item| key(item).into()));
        self
    }

    /// Calls back after each batch.
    pub fn on_progress(mut self, on_progress: impl FnMut(Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(on_progress));
        self
    }

    start_options!();

    async fn start(mut self) -> Result<StartedMany, Error> {
        let mut done = StartedMany::default();
        let mut items = 0;
        loop {
            let batch = self.next_batch(items, &mut done).await;
            if batch.taken == 0 {
                return Ok(done);
            }
            start_batch(&self.client, batch.runs, &mut done).await?;
            items += batch.taken;
            if let Some(on_progress) = &mut self.on_progress {
                on_progress(Progress {
                    items,
                    started: done.started,
                    existing: done.existing,
                    refused: done.refused,
                });
            }
        }
    }

    async fn next_batch(&mut self, first: u64, done: &mut StartedMany) -> Batch {
        let mut batch = Batch { taken: 0, bytes: 0, runs: Vec::new() };
        while batch.taken < START_BATCH_MAX as u64 && batch.bytes < BATCH_BYTES_MAX {
            let Some(item) = self.items.next(batch.so_far()).await else { break };
            let place = first + batch.taken;
            batch.taken += 1;
            match self.new_run(&item) {
                Ok(run) => {
                    batch.bytes += run.input.as_str().len();
                    batch.runs.push((place, run));
                }
                Err(error) => done.refuse(place, error),
            }
        }
        batch
    }

    fn new_run(&self, item: &I) -> Result<NewRun, Error> {
        let input = Json::of(item)?;
        let key = self.key.as_ref().map(|key| (key(item), input.fingerprint()));
        self.options.new_run(&self.client, self.workflow.clone(), input, key)
    }
}

async fn start_batch(
    client: &Inner,
    batch: Vec<(u64, NewRun)>,
    done: &mut StartedMany,
) -> Result<(), Error> {
    let keys: Vec<_> = (batch.iter())
        .map(|(place, run)| (*place, run.key.as_ref().map(|key| key.key.clone())))
        .collect();
    let runs = batch.into_iter().map(|(_, run)| run).collect();
    let answers = client.store.start(runs).await?;
    let mut replaces = false;
    for ((place, key), answer) in keys.into_iter().zip(answers) {
        match answer {
            Ok(started) if started.how == StartedHow::Existing => done.existing += 1,
            Ok(started) => {
                done.started += 1;
                replaces |= matches!(started.how, StartedHow::Replaced(_));
            }
            Err(error) => done.refuse(place, refused(error, key.as_deref())),
        }
    }
    if replaces {
        cascade(client.store.as_ref()).await;
    }
    Ok(())
}

struct Batch {
    /// Items taken from the source, refused ones included.
    taken: u64,
    bytes: usize,
    runs: Vec<(u64, NewRun)>,
}

impl Batch {
    fn so_far(&self) -> BatchSoFar {
        if self.taken == 0 { BatchSoFar::Empty } else { BatchSoFar::Filled }
    }
}

impl<I> Items<I> {
    /// The next item. A stream that has none yet is waited for only by an empty batch: items that
    /// are there are started rather than held back for a slow one.
    async fn next(&mut self, batch: BatchSoFar) -> Option<I> {
        let item = match self {
            Items::Ended => None,
            Items::Iter(items) => items.next(),
            Items::Stream(items) => {
                let polled = poll_fn(|cx| match items.as_mut().poll_next(cx) {
                    Poll::Pending if batch == BatchSoFar::Filled => Poll::Ready(Poll::Pending),
                    polled => polled.map(Poll::Ready),
                });
                match polled.await {
                    Poll::Pending => return None,
                    Poll::Ready(item) => item,
                }
            }
        };
        if item.is_none() {
            *self = Items::Ended;
        }
        item
    }
}

/// Whether a batch has anything to start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchSoFar {
    Empty,
    Filled,
}

impl StartedMany {
    fn refuse(&mut self, item: u64, error: Error) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_KEPT_MAX {
            self.refusals.push(Refusal { item, error });
        }
    }
}

impl<I: Serialize + Send + 'static> IntoFuture for StartMany<I> {
    type Output = Result<StartedMany, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl<I> fmt::Debug for StartMany<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartMany").field("workflow", &self.workflow).finish()
    }
}
