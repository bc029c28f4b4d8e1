//! The check of retry safety.
//!
//! Owns: [`retry_safe`], which plays are given and in which order. Never judges a play itself.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::Effects;
use super::effects::of_events;
use super::house::{House, OpenHouse};
use super::judge;
use super::play::{Build, Played, Script, play};
use super::report::{Finding, Point, Report, Side, What};
use crate::limits::{CHECK_LIFE_MAX, CHECK_POINTS_MAX, CHECK_REPLAYS};
use crate::{Ctx, Failure, Json, RunId, Workflow, worker};

/// The id of the run that is played, each time the same.
const RUN: RunId = RunId::from_u128(0x019b_75c0_0000_7000_8000_0000_0000_0001);

/// Checks that a workflow is safe to retry: [`check`](RetrySafe::check) executes it once to its
/// end, then once for every point at which its process can die, and compares.
///
/// `build` makes the workflow function, around fakes that note their effects. It is called once for
/// each simulated process: what it makes is in the memory of that process, and is lost when the process
/// dies. Each execution begins with a fresh outside world. The death of a process does not reset that
/// world, just as a crash of your process does not reset your bank. So a fake keeps its state in
/// [`Effects::outside`].
///
/// ```
/// use onward::testing::{Effects, retry_safe};
/// use onward::{Ctx, Failure, Workflow};
///
/// const COUNT: Workflow<String, ()> = Workflow::named("count");
///
/// async fn count(ctx: Ctx, page: String, effects: Effects) -> Result<(), Failure> {
///     ctx.step("count the visit", async |_| {
///         effects.note("visits + 1").payload(&page).await;
///         Ok::<_, Failure>(())
///     })
///     .await
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let build = |effects: Effects| move |ctx, page| count(ctx, page, effects.clone());
/// let report = retry_safe(COUNT, build, &"home".to_owned()).check().await;
/// assert!(!report.is_safe());
/// assert!(report.to_string().contains("\"visits + 1\" of step \"count the visit\" happened 2 times"));
/// # }
/// ```
pub fn retry_safe<I, O, B, F, Fut>(workflow: Workflow<I, O>, build: B, input: &I) -> RetrySafe
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    B: Fn(Effects) -> F + Send + Sync + 'static,
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    let check = RetrySafe {
        workflow: workflow.name().to_owned(),
        input: Json::of(input).map_err(|error| error.to_string()),
        builds: Vec::new(),
        varying: BTreeSet::new(),
        signals: Vec::new(),
        open: House::memory(),
        time_max: CHECK_LIFE_MAX,
        apart: Duration::ZERO,
    };
    check.serve(workflow, build)
}

/// A check that is being set up; made by [`retry_safe`].
#[must_use = "nothing is checked until check() is awaited"]
pub struct RetrySafe {
    workflow: String,
    input: Result<Json, String>,
    builds: Vec<(String, Build)>,
    varying: BTreeSet<String>,
    signals: Vec<(String, Json)>,
    open: OpenHouse,
    time_max: Duration,
    apart: Duration,
}

impl RetrySafe {
    /// Serves another workflow too, for those that the checked one starts.
    pub fn serve<I, O, B, F, Fut>(mut self, workflow: Workflow<I, O>, build: B) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        B: Fn(Effects) -> F + Send + Sync + 'static,
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let build: Build = Arc::new(move |effects| worker::handler(build(effects)));
        self.builds.push((workflow.name().to_owned(), build));
        self
    }

    /// Sends the run this signal when it is started; it is kept until the function asks for it.
    pub fn signal<T: Serialize + ?Sized>(mut self, name: impl Into<String>, value: &T) -> Self {
        match Json::of(value) {
            Ok(value) => self.signals.push((name.into(), value)),
            Err(error) => self.input = Err(error.to_string()),
        }
        self
    }

    /// Waits this long by the machine's clock before another process goes on after a crash: nothing,
    /// unless set. A key that is made from a clock in seconds, or from the date, is the same in the
    /// next millisecond and another one after a real outage; so it takes a second for each point to
    /// find the first kind.
    ///
    /// ```no_run
    /// # use onward::testing::{Effects, retry_safe};
    /// # use onward::{Ctx, Failure, Workflow};
    /// # use std::time::Duration;
    /// # const CHARGE: Workflow<(), ()> = Workflow::named("charge");
    /// # async fn charge(_: Ctx, _: ()) -> Result<(), Failure> { Ok(()) }
    /// # async fn example() {
    /// let check = retry_safe(CHARGE, |_: Effects| charge, &());
    /// let report = check.apart(Duration::from_millis(1_100)).check().await;
    /// assert!(report.is_safe(), "{report}");
    /// # }
    /// ```
    pub fn apart(mut self, pause: Duration) -> Self {
        self.apart = pause;
        self
    }

    /// Lets the step that is recorded under this name give another result when it is executed again,
    /// as one that reads a clock does. Its results are not compared, nor is the run's output, which may be made of them.
    pub fn may_vary(mut self, step: impl Into<String>) -> Self {
        self.varying.insert(step.into());
        self
    }

    /// Checks in a SQLite file, for a workflow with transactions: `prepare` makes its tables, in a
    /// fresh file for each execution. What a transaction writes needs no note: it is there once.
    ///
    /// ```
    /// use onward::testing::{Effects, retry_safe};
    /// use onward::{Ctx, Failure, Workflow};
    ///
    /// const VISIT: Workflow<String, ()> = Workflow::named("visit");
    ///
    /// async fn visit(ctx: Ctx, page: String) -> Result<(), Failure> {
    ///     let count = ctx.sqlite_transaction("count", move |db, _| {
    ///         db.execute("update pages set visits = visits + 1 where name = ?1", [&page]).map(drop)
    ///     });
    ///     count.await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let report = retry_safe(VISIT, |_: Effects| visit, &"home".to_owned())
    ///     .sqlite(|db| {
    ///         db.execute_batch("create table pages (name text primary key, visits integer not null);
    ///             insert into pages values ('home', 0)")
    ///     })
    ///     .check()
    ///     .await;
    /// assert!(report.is_safe(), "{report}");
    /// # }
    /// ```
    #[cfg(feature = "sqlite")]
    pub fn sqlite<F>(mut self, prepare: F) -> Self
    where
        F: Fn(&rusqlite::Connection) -> rusqlite::Result<()> + Send + Sync + 'static,
    {
        self.open = House::sqlite(prepare);
        self
    }

    /// How long the process may take for the rest of the run, by the machine's clock, each time it
    /// is started; [`CHECK_LIFE_MAX`] unless set. A run that takes longer did not end.
    pub fn within(mut self, time: Duration) -> Self {
        self.time_max = time;
        self
    }

    /// Executes and compares, on a thread of its own.
    ///
    /// # Panics
    /// When `build` panics.
    pub async fn check(self) -> Report {
        let (tell, told) = oneshot::channel();
        let workflow = self.workflow.clone();
        let checking = std::thread::Builder::new().name("onward-check".to_owned());
        let checking = checking.spawn(move || {
            let report = self.check_here(&|| tell.is_closed());
            // An error says that nobody waits any more.
            let _ = tell.send(report);
        });
        match (told.await, checking) {
            (Ok(report), _) => report,
            (Err(_), Ok(checking)) => match checking.join() {
                Ok(()) => refused(workflow, "the check ended without a word".to_owned()),
                Err(panic) => std::panic::resume_unwind(panic),
            },
            (Err(_), Err(error)) => refused(workflow, error.to_string()),
        }
    }

    fn check_here(self, is_given_up: &dyn Fn() -> bool) -> Report {
        let input = match self.input {
            Ok(input) => input,
            Err(why) => return refused(self.workflow, why),
        };
        let script = Script {
            workflow: self.workflow.clone(),
            input,
            run: RUN,
            builds: self.builds,
            signals: self.signals,
            open: self.open,
            time_max: self.time_max,
            apart: self.apart,
        };
        let without = play(&script, None);
        let mut report = begin(self.workflow, &without);
        if judge::not_ended(&without).is_some() {
            return report;
        }
        for (number, point) in without.points.iter().enumerate().take(CHECK_POINTS_MAX) {
            if is_given_up() {
                break;
            }
            let with = play(&script, Some(number));
            report.points += 1;
            for finding in judge::compare(&without, &with, &self.varying) {
                report.add(finding, Some(point));
            }
        }
        report.points_left = without.points.len() - report.points;
        if let Some((number, point)) = before_its_end(&without) {
            for _ in 1..CHECK_REPLAYS {
                if is_given_up() {
                    break;
                }
                let with = play(&script, Some(number));
                for finding in judge::compare(&without, &with, &self.varying) {
                    report.add(finding, Some(point));
                }
            }
        }
        report
    }
}

/// The point at which all is done but to say so: what follows a death there is a replay of everything.
fn before_its_end(played: &Played) -> Option<(usize, &Point)> {
    let points = played.points.iter().enumerate();
    points.rev().find(|(_, point)| point.what == What::End && point.side == Side::Before)
}

/// The report of the play without a crash.
fn begin(workflow: String, without: &Played) -> Report {
    let mut report = empty(workflow);
    report.effects = of_events(&without.events).len();
    let findings = judge::of_effects(without).into_iter().chain(judge::not_ended(without));
    findings.for_each(|finding| report.add(finding, None));
    report
}

fn refused(workflow: String, why: String) -> Report {
    let mut report = empty(workflow);
    report.add(Finding::NotEnded { why }, None);
    report
}

fn empty(workflow: String) -> Report {
    let (findings, notes) = (Vec::new(), Vec::new());
    Report { workflow, effects: 0, points: 0, points_left: 0, findings, notes }
}

impl fmt::Debug for RetrySafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetrySafe").field("workflow", &self.workflow).finish_non_exhaustive()
    }
}
