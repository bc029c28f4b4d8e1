//! What a step's body is given.
//!
//! Owns: [`Step`], one try as its body sees it. Never a way back into the run: a body cannot take
//! steps.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::RunId;

/// One try of a step, as its body sees it.
///
/// ```
/// # use onward::{Ctx, Failure};
/// # async fn charge(_key: &str) -> Result<u64, std::io::Error> { Ok(1) }
/// # async fn workflow(ctx: Ctx) -> Result<u64, Failure> {
/// ctx.step("charge", async |step| charge(step.id()).await).await
/// # }
/// ```
#[derive(Clone)]
pub struct Step {
    pub(super) id: Arc<str>,
    pub(super) run: RunId,
    pub(super) try_number: u32,
    pub(super) cancelled: watch::Receiver<bool>,
}

impl Step {
    /// The step's id: `{run id}/{step name}`, with `#2` for the second step of that name. It is
    /// the same over all tries, crashes and machines: hand it on as the idempotency key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The number of this try, from 1.
    pub fn try_number(&self) -> u32 {
        self.try_number
    }

    /// The run's id.
    pub fn run_id(&self) -> RunId {
        self.run
    }

    /// Resolves when the run is asked to end. The body has a few seconds from then on.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn long_work() -> Result<u32, std::io::Error> { Ok(1) }
    /// # async fn workflow(ctx: Ctx) -> Result<u32, Failure> {
    /// ctx.step("long work", async |step| {
    ///     tokio::select! {
    ///         done = long_work() => Ok(done?),
    ///         () = step.cancelled() => Err(Failure::fatal("stopped half-way")),
    ///     }
    /// })
    /// # .await }
    /// ```
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        // An error means that the run is over, which ends the body as well.
        let _ = cancelled.wait_for(|cancelled| *cancelled).await;
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("id", &self.id).field("try", &self.try_number).finish()
    }
}
