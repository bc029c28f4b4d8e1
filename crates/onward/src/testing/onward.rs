//! A client for tests, with a clock that jumps.
//!
//! Owns: [`TestOnward`]. Never waits for the machine's clock where the store's is meant.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::house::{House, OpenHouse};
use super::timekeeper::Timekeeper;
use crate::limits::{DURATION_MAX, PAGE_ROWS_MAX};
use crate::store::lossy::LossyStore;
use crate::store::{self, Query, Store};
use crate::watch::Watch;
use crate::{Around, Code, Error, Onward, TestClock, Timestamp, WorkerBuilder, why};

/// How long nothing may happen, by the machine's clock, before it is said what a test waits for.
const SILENCE: Duration = Duration::from_secs(3);

/// An [`Onward`] on a memory store of its own, whose clock jumps to the next time that matters.
///
/// Time passes while the test waits for a run ([`result`](crate::RunHandle::result),
/// [`ended`](crate::RunHandle::ended)) and nothing is left to do before the next timer, and when
/// the test says so ([`advance`](Self::advance)). It never passes while a step's body executes.
///
/// ```
/// use onward::testing::TestOnward;
/// use onward::{Ctx, Failure, RunState, Workflow};
/// use std::time::Duration;
///
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// const TRIAL: Workflow<(), u32> = Workflow::named("trial");
///
/// async fn trial(ctx: Ctx, (): ()) -> Result<u32, Failure> {
///     ctx.sleep(14 * DAY).await;
///     ctx.step("bill", async |_| Ok::<_, Failure>(900)).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// let onward = TestOnward::new().await?;
/// onward.worker().serve(TRIAL, trial).start().await?;
/// let run = onward.start(TRIAL, &()).await?;
///
/// onward.advance(13 * DAY).await;
/// assert_eq!(run.status().await?.state, RunState::Waiting);
/// onward.advance(DAY).await;
/// assert_eq!(run.status().await?.state, RunState::Completed);
/// assert_eq!(run.result().await?, 900);
/// # Ok(()) }
/// ```
pub struct TestOnward {
    onward: Onward,
    keeper: Arc<Timekeeper>,
    keeping: JoinHandle<()>,
    _house: House,
}

impl TestOnward {
    /// An empty store whose clock stands at a fixed moment in 2026.
    ///
    /// # Errors
    /// `invalid_option` outside a Tokio runtime.
    pub async fn new() -> Result<Self, Error> {
        Self::open(TestClock::new(), &House::memory())
    }

    /// An empty store whose clock stands at this moment.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub async fn at(time: Timestamp) -> Result<Self, Error> {
        Self::open(TestClock::at(time), &House::memory())
    }

    /// A store in a SQLite file, for workflows with transactions. `prepare` makes their tables; the
    /// file goes with the test.
    ///
    /// ```
    /// # use onward::testing::TestOnward;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// let tables = "create table accounts (id integer primary key, cents integer not null)";
    /// let onward = TestOnward::sqlite(move |db| db.execute_batch(tables)).await?;
    /// # let _ = onward; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`new`](Self::new), or why the file cannot be made.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite<F>(prepare: F) -> Result<Self, Error>
    where
        F: Fn(&rusqlite::Connection) -> rusqlite::Result<()> + Send + Sync + 'static,
    {
        Self::open(TestClock::new(), &House::sqlite(prepare))
    }

    fn open(clock: TestClock, open: &OpenHouse) -> Result<Self, Error> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|source| Error::new(Code::InvalidOption).because(source))?;
        let house = open(clock.clone())?;
        let watch = Arc::new(Watch::default());
        let store = LossyStore::around(Arc::clone(&house.store)).watched(Arc::clone(&watch));
        let store: Arc<dyn Store> = Arc::new(store);
        let keeper = Arc::new(Timekeeper::new(clock, Arc::clone(&watch)));
        let keeping = runtime.spawn(keep(Arc::clone(&keeper), Arc::clone(&store)));
        Ok(Self { onward: Onward::watched(store, Some(watch)), keeper, keeping, _house: house })
    }

    /// A worker to set up. Its lease outlasts every jump of the clock, and runs that wait are parked
    /// at once.
    pub fn worker(&self) -> WorkerBuilder {
        self.onward.worker().lease(DURATION_MAX).linger(Duration::ZERO)
    }

    /// The time by the store's clock.
    pub fn now(&self) -> Timestamp {
        self.keeper.now()
    }

    /// Lets this much time pass, and everything happen that is due within it, each at its time:
    /// three sleeps of an hour end one after the other within `advance` by three hours.
    /// Returns when nothing is left to do.
    pub async fn advance(&self, by: Duration) {
        self.keeper.advance(by).await;
    }

    /// Waits until nothing is left to do before time passes: every run has ended or waits.
    ///
    /// ```
    /// # use onward::testing::TestOnward;
    /// # use onward::{Ctx, Failure, RunState, Workflow};
    /// # use std::time::Duration;
    /// # const NAP: Workflow<(), ()> = Workflow::named("nap");
    /// # async fn nap(ctx: Ctx, (): ()) -> Result<(), Failure> {
    /// #     ctx.sleep(Duration::from_secs(60)).await;
    /// #     Ok(())
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = TestOnward::new().await?;
    /// # onward.worker().serve(NAP, nap).start().await?;
    /// let begin = onward.now();
    /// let run = onward.start(NAP, &()).await?;
    /// onward.quiet().await;
    /// assert_eq!(run.status().await?.state, RunState::Waiting);
    /// assert_eq!(onward.now(), begin);
    /// # Ok(()) }
    /// ```
    pub async fn quiet(&self) {
        self.keeper.quiet().await;
    }

    /// The store's clock. Moved by hand it jumps at once, even while a body executes: so a test
    /// can let a run's deadline pass while a service hangs.
    pub fn clock(&self) -> &TestClock {
        &self.keeper.clock
    }
}

impl Deref for TestOnward {
    type Target = Onward;

    fn deref(&self) -> &Onward {
        &self.onward
    }
}

impl Drop for TestOnward {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl fmt::Debug for TestOnward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOnward").field("now", &self.now()).finish()
    }
}

/// Keeps time until the test is over, and says what it waits for when nothing is to come.
async fn keep(keeper: Arc<Timekeeper>, store: Arc<dyn Store>) {
    loop {
        let changed = keeper.changed();
        tokio::pin!(changed);
        keeper.keep().await;
        tokio::select! {
            () = &mut changed => continue,
            () = tokio::time::sleep(SILENCE) => {}
        }
        // Where a hanging test is looked at.
        if let Ok(text) = what_it_waits_for(&*store).await {
            eprintln!("{text}");
        }
        changed.await;
    }
}

/// What a test waits for when no time is set for anything.
async fn what_it_waits_for(store: &dyn Store) -> Result<String, store::Error> {
    let query = Query { limit: PAGE_ROWS_MAX, ..Query::default() };
    let (page, stats) = (store.list(query).await?, store.stats().await?);
    let head = "onward::testing: the test waits for a run, and no time is set for anything:";
    let mut text = head.to_owned();
    for run in page.runs.iter().filter(|run| !run.state.is_final()) {
        let used = match store.queues() {
            Some(queues) => queues.queue_use(run.queue.clone(), run.lane.clone()).await?,
            None => None,
        };
        let around = Around { workers: &stats.workers, used: used.as_ref(), holder: None };
        let reason = why(run, around, store.clock().now());
        text += &format!("\n  run {} of {:?}: {reason}", run.id, run.workflow);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workflow;

    const LONELY: Workflow<(), ()> = Workflow::named("lonely");

    #[tokio::test]
    async fn a_test_that_waits_for_nothing_is_told_what_is_missing() {
        let onward = TestOnward::new().await.unwrap();
        let run = onward.start(LONELY, &()).await.unwrap();
        let text = what_it_waits_for(&**onward.store()).await.unwrap();
        assert!(text.contains(&run.id().to_string()), "{text}");
        assert!(text.contains("No live worker serves workflow \"lonely\""), "{text}");
    }
}
