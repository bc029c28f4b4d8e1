//! One process's share of a measure, as that process sees it.
//!
//! Owns: what it is asked and answers. Never measures how long the whole takes; its parent does.

use std::time::Duration;

use onward::Onward;

use crate::bench::Fallible;
use crate::role::{heard, ready, say};

/// Asks for the times that were noted; anything else that is asked is how much to do.
pub(crate) const TIMES: &str = "times";

/// What is said when a share is done.
const DONE: &str = "done";

/// What one of the processes that take a measure together does.
///
/// A run that one process starts may be served by another, so that times are noted where they
/// pass and are complete when all processes are done.
pub(crate) trait Share: Sized {
    /// Serves what the measure is taken with, so much at once.
    async fn begin(onward: Onward, at_once: usize) -> Fallible<Self>;

    /// Does so much.
    async fn work(&mut self, amount: usize) -> Fallible<()>;

    /// The times that were noted since it was last asked.
    fn times(&mut self) -> Vec<Duration> {
        Vec::new()
    }

    async fn end(self) -> Fallible<()>;
}

/// Does what the parent asks until it lets this process end.
pub(crate) async fn serve<S: Share>(onward: Onward, at_once: usize) -> Fallible<()> {
    let mut share = S::begin(onward, at_once).await?;
    ready();
    while let Some(asked) = heard().await? {
        if asked == TIMES {
            let nanos = share.times().into_iter().map(|time| time.as_nanos().to_string());
            say(&nanos.collect::<Vec<_>>().join(" "));
        } else {
            share.work(asked.parse()?).await?;
            say(DONE);
        }
    }
    share.end().await
}
