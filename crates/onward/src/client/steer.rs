//! Steering one run: cancel, retry, pause, resume, delete, and its log.
//!
//! Owns: what each of these asks of the store, for a handle and for many runs alike. Never decides
//! whether the run allows it; the store does.

use std::future::Future;

use super::handle::RunHandle;
use super::{ForkRun, Inner};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::{Error as StoreError, Pause, Steer, Which};
use crate::upkeep::cascade;
use crate::{Code, Error, LogLine, Run, RunId};

/// The last of the runs that go on for one, or the run itself.
pub(super) async fn last(client: &Inner, mut run: RunId) -> Result<Run, Error> {
    loop {
        let found = client.store.get(Which::Id(run)).await?;
        match found.ok_or_else(|| Error::new(Code::RunNotFound).of_run(run))? {
            Run { continued_as: Some(next), .. } => run = next,
            found => return Ok(found),
        }
    }
}

/// Does something to a run or, where that is over because another goes on for it, to the last of those.
pub(super) async fn follow<'a, T, F, A>(
    client: &'a Inner,
    mut run: RunId,
    act: F,
) -> Result<T, Error>
where
    F: Fn(RunId) -> A,
    A: Future<Output = Result<T, StoreError>> + Send + 'a,
{
    loop {
        let refused = match act(run).await {
            Ok(done) => return Ok(done),
            Err(error) => Error::from(error).of_run(run),
        };
        if !matches!(refused.code(), Code::RunFinished | Code::RunNotFailed) {
            return Err(refused);
        }
        match last(client, run).await?.id {
            last if last == run => return Err(refused),
            last => run = last,
        }
    }
}

/// Asks a run to end, and its children with it.
pub(super) async fn cancel(client: &Inner, run: RunId) -> Result<(), Error> {
    follow(client, run, |run| client.store.cancel(run)).await?;
    cascade(client.store.as_ref()).await;
    Ok(())
}

/// Lets a failed or stuck run go on.
pub(super) async fn retry(client: &Inner, run: RunId) -> Result<(), Error> {
    follow(client, run, |run| client.store.retry(run)).await.map(drop)
}

/// Pauses a run, for this process.
pub(super) async fn pause(client: &Inner, run: RunId) -> Result<(), Error> {
    pause_by(client, run, client.caller.clone()).await
}

async fn pause_by(client: &Inner, run: RunId, caller: String) -> Result<(), Error> {
    let steer = steer(client)?;
    let pause = |run| steer.pause(Pause { run, caller: caller.clone() });
    follow(client, run, pause).await.map(drop)
}

/// Lets a paused run go on.
pub(super) async fn resume(client: &Inner, run: RunId) -> Result<(), Error> {
    let steer = steer(client)?;
    follow(client, run, |run| steer.resume(run)).await.map(drop)
}

/// Deletes a run that has ended; says whether it was there.
pub(super) async fn delete(client: &Inner, run: RunId) -> Result<bool, Error> {
    let deletes = client.store.deletes().ok_or_else(|| Error::new(Code::VerbUnsupported))?;
    Ok(deletes.delete_run(run).await?)
}

/// Frees the key of a run that has ended; says whether it had it.
pub(super) async fn release_key(client: &Inner, run: RunId) -> Result<bool, Error> {
    let deletes = client.store.deletes().ok_or_else(|| Error::new(Code::VerbUnsupported))?;
    Ok(deletes.release_run_key(run).await?)
}

/// The store as one that steers.
pub(super) fn steer(client: &Inner) -> Result<&dyn Steer, Error> {
    client.store.steer().ok_or_else(|| Error::new(Code::VerbUnsupported))
}

impl<O> RunHandle<O> {
    /// Pauses the run: a step that is executing is let finish and is recorded, nothing new begins, and
    /// the run is given back. Until [`resume`](RunHandle::resume) no worker takes it. Timers that come
    /// due and signals that arrive are kept. Its deadline holds all the same, and a cancel goes
    /// through. A run that is already paused stays as it is. If the run continues as another, the last
    /// of these runs is paused.
    ///
    /// ```
    /// # use onward::{Code, Onward, Workflow};
    /// # const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(BILL, &100).await?;
    /// run.pause().await?;
    /// assert!(run.status().await?.paused_at.is_some());
    /// println!("{}", run.why().await?); // paused since when, by whom, and how it goes on
    /// run.resume().await?;
    /// # run.cancel().await?;
    /// # assert_eq!(run.pause().await.unwrap_err().code(), Code::RunFinished);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `run_finished` when it has ended or is asked to, `run_not_found`, or that the store does not
    /// answer.
    pub async fn pause(&self) -> Result<(), Error> {
        pause(&self.client, self.id).await
    }

    /// As [`pause`](RunHandle::pause), in the name of somebody else than this process, as a server has it
    /// from its callers: the run shows it as `paused_by`.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let run = onward.start(BILL, &100).await?;
    /// run.pause_by("ada").await?;
    /// assert_eq!(run.status().await?.paused_by.as_deref(), Some("ada"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`pause`](RunHandle::pause).
    pub async fn pause_by(&self, caller: impl Into<String>) -> Result<(), Error> {
        pause_by(&self.client, self.id, caller.into()).await
    }

    /// Lets a paused run go on: at once, or when what it waits for comes. One that is not paused stays
    /// as it is. If the run continues as another, the last of these runs is resumed.
    ///
    /// # Errors
    /// `run_finished` when it has ended, `run_not_found`, or that the store does not answer.
    pub async fn resume(&self) -> Result<(), Error> {
        resume(&self.client, self.id).await
    }

    /// Starts a new run of the same workflow with the records that this one has before a step, so that
    /// what was done by then is not done again. Started when it is awaited.
    ///
    /// The new run has an id of its own, and so have its steps: what this run presented outside as an
    /// idempotency key is not what the new one presents. It is nobody's child and has no deadline.
    ///
    /// ```
    /// use onward::{Ctx, Failure, Onward, Workflow};
    ///
    /// const QUOTE: Workflow<u32, u32> = Workflow::named("quote");
    ///
    /// async fn quote(ctx: Ctx, percent: u32) -> Result<u32, Failure> {
    ///     let cost = ctx.step("ask the supplier", async |_| Ok::<_, Failure>(200)).await?;
    ///     ctx.step("add margin", async |_| Ok::<_, Failure>(cost + cost * percent / 100)).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let worker = onward.worker().serve(QUOTE, quote).start().await?;
    /// let run = onward.start(QUOTE, &10).await?;
    /// assert_eq!(run.result().await?, 220);
    /// // The supplier is not asked again.
    /// let dearer = run.fork("add margin").input(&20).await?;
    /// assert_eq!(dearer.result().await?, 240);
    /// assert_eq!(dearer.status().await?.forked_from, Some(run.id()));
    /// # worker.shutdown().await }
    /// ```
    ///
    /// # Errors
    /// When it is awaited: `step_not_found` with the steps that are there, `fork_refused` when a child
    /// that was started before the step had not ended, or a callback had no answer, `key_taken`,
    /// `run_not_found`, or that the store does not answer.
    pub fn fork(&self, step: impl Into<String>) -> ForkRun<O> {
        ForkRun::new(std::sync::Arc::clone(&self.client), self.id, step.into())
    }

    /// The lines of the run's log that are kept, in order: what [`Ctx::log`](crate::Ctx::log) and
    /// [`Step::log`](crate::Step::log) wrote.
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn log(&self) -> Result<Vec<LogLine>, Error> {
        self.log_after(0).await
    }

    /// As [`log`](RunHandle::log), only what follows a line, by its number.
    ///
    /// # Errors
    /// `run_not_found`, or that the store does not answer.
    pub async fn log_after(&self, line: u64) -> Result<Vec<LogLine>, Error> {
        let notebook = self.client.store.notebook();
        let notebook = notebook.ok_or_else(|| Error::new(Code::VerbUnsupported))?;
        let mut lines: Vec<LogLine> = Vec::new();
        loop {
            let after = lines.last().map_or(line, |last| last.no);
            let page = notebook.log(self.id, after, PAGE_ROWS_MAX).await;
            let page = page.map_err(|error| Error::from(error).of_run(self.id))?;
            lines.extend(page.lines);
            if !page.more {
                return Ok(lines);
            }
        }
    }
}
