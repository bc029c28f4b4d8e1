//! Queues of a place.
//!
//! Owns: each look and each change in both ways. Never counts; the store does.

use onward::{Queue, QueueCounts, QueueLimits};
use serde::Deserialize;

use super::{Call, Page, Place, segment};
use crate::problem::Problem;

#[derive(Deserialize)]
struct Cleared {
    cleared: bool,
    queue: Queue,
}

impl Place {
    /// Every queue that is set up or has live runs, by name.
    pub(crate) async fn queues(&self) -> Result<Vec<QueueCounts>, Problem> {
        let (mut all, mut after) = (Vec::<QueueCounts>::new(), None::<String>);
        loop {
            let (queues, more) = match self {
                Place::Store(onward) => {
                    let page = onward.queues(after.as_deref()).await?;
                    (page.queues, page.more)
                }
                Place::Server(_) => {
                    let call = Call::get("/queues").query_if("cursor", after.as_deref());
                    let page: Page<QueueCounts> = self.ask(&call).await?;
                    (page.items, page.next.is_some())
                }
            };
            all.extend(queues);
            after = all.last().map(|last| last.queue.name.clone());
            if !more {
                return Ok(all);
            }
        }
    }

    /// Sets all limits of a queue.
    pub(crate) async fn limit_queue(
        &self,
        name: &str,
        limits: QueueLimits,
    ) -> Result<Queue, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.queue(name).limits(limits).save().await?),
            Place::Server(_) => self.ask(&Call::put(path(name)).body(&limits)?).await,
        }
    }

    /// Pauses a queue.
    pub(crate) async fn pause_queue(&self, name: &str) -> Result<Queue, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.queue(name).pause().await?),
            Place::Server(_) => self.ask(&Call::post(format!("{}/pause", path(name)))).await,
        }
    }

    /// Lets a paused queue go on.
    pub(crate) async fn resume_queue(&self, name: &str) -> Result<Queue, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.queue(name).resume().await?),
            Place::Server(_) => self.ask(&Call::post(format!("{}/resume", path(name)))).await,
        }
    }

    /// Takes all limits from a queue, and its pause; says whether it had any, and how it stands.
    pub(crate) async fn clear_queue(&self, name: &str) -> Result<(bool, Queue), Problem> {
        match self {
            Place::Store(onward) => {
                let queue = onward.queue(name);
                Ok((queue.clear().await?, queue.status().await?))
            }
            Place::Server(_) => {
                let cleared: Cleared = self.ask(&Call::delete(path(name))).await?;
                Ok((cleared.cleared, cleared.queue))
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("/queues/{}", segment(name))
}
