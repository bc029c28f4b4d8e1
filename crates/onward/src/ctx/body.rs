//! What a step's body is given.
//!
//! Owns: [`Step`], one try as its body sees it. Never a way back into the run: a body cannot take
//! steps.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::RunId;
use crate::driver::board::Board;

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
    pub(super) board: Arc<Board>,
    /// The name under which it is recorded.
    pub(super) name: Arc<str>,
    /// Made when it is asked for, unless it derives from a key: most bodies do not ask.
    pub(super) id: OnceLock<Arc<str>>,
    pub(super) fence: Option<u64>,
    pub(super) run: RunId,
    pub(super) try_number: u32,
}

impl Step {
    /// The step's id: `{run id}/{step name}`, with `#2` for the second step of that name, or `#={id}`
    /// with an [`id`](crate::StepFuture::id). It is the same over all tries, crashes and machines: hand
    /// it on as the idempotency key. That of a step with a [`key`](crate::StepFuture::key) is
    /// `key/{key}`, and is the same over runs.
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| format!("{}/{}", self.run, self.name).into())
    }

    /// The name under which it is recorded.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The number of this try, from 1.
    pub fn try_number(&self) -> u32 {
        self.try_number
    }

    /// The fencing token of the step's key, if it has one. It rises with every hold of a key: an
    /// outside system that remembers the highest it saw can refuse a holder that was believed dead.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn put(_: &str, _fence: Option<u64>) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, file: String) -> Result<(), Failure> {
    /// let put = ctx.step("put", async |step| put(&file, step.fence()).await);
    /// put.key(format!("put-{file}")).await
    /// # }
    /// ```
    pub fn fence(&self) -> Option<u64> {
        self.fence
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
        let mut cancelled = self.board.cancelled();
        // The board is there as long as this step is, so that it never ends with an error.
        let _ = cancelled.wait_for(|cancelled| *cancelled).await;
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("id", &self.id()).field("try", &self.try_number).finish()
    }
}
