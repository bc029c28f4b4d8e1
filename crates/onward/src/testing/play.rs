//! A play: one run from its start to its end, with a process that may die once on the way.
//!
//! Owns: the lives of a play, each a runtime of its own that is dropped where it stands, and what
//! is left in the store. Never judges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Effects;
use super::house::OpenHouse;
use super::observer;
use super::report::Point;
use super::timekeeper::Timekeeper;
use super::trace::{Event, Trace};
use crate::driver::Handler;
use crate::limits::{DURATION_MAX, PAGE_ROWS_MAX, QUEUE_DEFAULT};
use crate::store::lossy::LossyStore;
use crate::store::{NewRun, StartAt, Store, Which};
use crate::watch::Watch;
use crate::{Error, Json, Onward, Query, Record, Run, RunId, TestClock, Waits};

/// Makes a workflow function around fakes.
pub(super) type Build = Arc<dyn Fn(Effects) -> Handler + Send + Sync>;

/// What is played.
#[derive(Clone)]
pub(super) struct Script {
    pub(super) workflow: String,
    pub(super) input: Json,
    /// The same in each play, so that what derives from it is the same too.
    pub(super) run: RunId,
    /// The workflows that are served, the one under test first.
    pub(super) builds: Vec<(String, Build)>,
    /// Sent to the run when it is started.
    pub(super) signals: Vec<(String, Json)>,
    /// Where it is played.
    pub(super) open: OpenHouse,
    /// How long one life may take by the machine's clock.
    pub(super) time_max: Duration,
    /// How long a dead process is followed by nobody, by the machine's clock.
    pub(super) apart: Duration,
}

/// The records of each run that has ended, and of the first in any case, by where it came from: the
/// steps that started it and what started it, one behind the other. The first has no such place.
pub(super) type Histories = BTreeMap<String, Vec<Record>>;

/// How a play went.
pub(super) struct Played {
    pub(super) finish: Finish,
    pub(super) histories: Histories,
    pub(super) events: Vec<Event>,
    pub(super) points: Vec<Point>,
}

/// How a play ended.
pub(super) enum Finish {
    /// The run ended.
    Ended(Box<Run>),
    /// The run waits, and nothing will wake it.
    Waits(Box<Run>),
    /// The time for one life was over.
    TimedOut,
    /// It could not be played.
    Refused(Error),
}

impl Played {
    fn refused(error: Error) -> Self {
        let finish = Finish::Refused(error);
        Self { finish, histories: Histories::new(), events: Vec::new(), points: Vec::new() }
    }
}

/// Why a life ended.
enum LifeEnd {
    Died,
    Rested,
    TimedOut,
}

/// Plays the script, with a process that dies at the point of this number, if any.
pub(super) fn play(script: &Script, target: Option<usize>) -> Played {
    let clock = TestClock::new();
    let house = match (script.open)(clock.clone()) {
        Ok(house) => house,
        Err(error) => return Played::refused(error),
    };
    let trace = Trace::dying_at(target);
    let store = Arc::clone(&house.store);
    let stage = Stage { script, clock, store, trace };
    let finish = stage.play().unwrap_or_else(Finish::Refused);
    Played {
        finish,
        histories: stage.histories().unwrap_or_default(),
        events: stage.trace.events(),
        points: stage.trace.points(),
    }
}

/// What outlives a process: the store, the time, and the outside world, which the trace keeps.
struct Stage<'a> {
    script: &'a Script,
    clock: TestClock,
    store: Arc<dyn Store>,
    trace: Arc<Trace>,
}

impl Stage<'_> {
    fn play(&self) -> Result<Finish, Error> {
        block_on(self.start())??;
        loop {
            match self.live()? {
                LifeEnd::Died => std::thread::sleep(self.script.apart),
                LifeEnd::TimedOut => return Ok(Finish::TimedOut),
                LifeEnd::Rested => return self.look(),
            }
        }
    }

    async fn start(&self) -> Result<(), Error> {
        let run = NewRun {
            id: self.script.run,
            workflow: self.script.workflow.clone(),
            queue: QUEUE_DEFAULT.to_owned(),
            lane: None,
            priority: 0,
            input: self.script.input.clone(),
            key: None,
            start_at: StartAt::Now,
            timeout_ms: None,
            tags: Default::default(),
            caller: "onward::testing".to_owned(),
            parent: None,
            claimant: None,
        };
        self.store.start(vec![run]).await?.into_iter().try_for_each(|answer| answer.map(drop))?;
        let run = Onward::with_store(Arc::clone(&self.store)).run(self.script.run);
        for (name, body) in &self.script.signals {
            run.signal(name, body).await?;
        }
        Ok(())
    }

    /// One life of the process, on this thread alone.
    fn live(&self) -> Result<LifeEnd, Error> {
        let runtime = runtime()?;
        self.trace.begin_life();
        // Each life has functions of its own: what one keeps in memory is gone with its process.
        let effects = || Effects::of(Arc::clone(&self.trace));
        let build = |(name, build): &(String, Build)| (name.clone(), build(effects()));
        let served = self.script.builds.iter().map(build).collect();
        let _observed = observer::install(Arc::clone(&self.trace));
        let end = runtime.block_on(self.serve(served));
        // Not awaited: what blocks a thread of its own must not hold up the next life.
        runtime.shutdown_background();
        end
    }

    async fn serve(&self, served: Vec<(String, Handler)>) -> Result<LifeEnd, Error> {
        // A dead worker's runs are given back, as a sweep would do.
        for worker in self.store.stats().await?.workers {
            self.store.leave(worker.id).await?;
        }
        let trace = Arc::clone(&self.trace);
        let watch = Arc::new(Watch::default());
        let store = LossyStore::around(Arc::clone(&self.store)).watched(Arc::clone(&watch));
        let store = Arc::new(store.judged(Box::new(move |write| trace.judge(write))));
        self.trace.serves(&store);
        let keeper = Timekeeper::new(self.clock.clone(), Arc::clone(&watch));
        let onward = Onward::watched(Arc::clone(&store) as Arc<dyn Store>, Some(watch));
        // Whatever waits is parked, so that the function is replayed without a crash too.
        let mut worker = onward.worker().lease(DURATION_MAX).linger(Duration::ZERO);
        for (name, handler) in served {
            worker = worker.serve_with(name, handler);
        }
        let _worker = worker.start().await?;
        let run = onward.run(self.script.run);
        tokio::select! {
            biased;
            () = store.died() => Ok(LifeEnd::Died),
            ended = run.ended() => ended.map(|_| LifeEnd::Rested),
            () = keeper.keep() => Ok(LifeEnd::Rested),
            () = tokio::time::sleep(self.script.time_max) => Ok(LifeEnd::TimedOut),
        }
    }

    /// How the run stands, or the one that it goes on as.
    fn look(&self) -> Result<Finish, Error> {
        let mut id = self.script.run;
        loop {
            let run = block_on(self.store.get(Which::Id(id)))??;
            match run {
                Some(Run { continued_as: Some(next), .. }) => id = next,
                Some(run) if run.state.is_final() => return Ok(Finish::Ended(Box::new(run))),
                Some(run) => return Ok(Finish::Waits(Box::new(self.stuck()?.unwrap_or(run)))),
                None => return Err(Error::new(crate::Code::RunNotFound).of_run(id)),
            }
        }
    }

    /// A run that cannot go on: what another one that waits for its child really waits for.
    fn stuck(&self) -> Result<Option<Run>, Error> {
        let stuck = |run: &Run| matches!(run.waits_for, Some(Waits::Stuck { .. }));
        Ok(self.runs()?.into_values().find(stuck))
    }

    fn histories(&self) -> Result<Histories, Error> {
        let onward = Onward::with_store(Arc::clone(&self.store));
        let runs = self.runs()?;
        let first = |run: &Run| run.id == self.script.run;
        let judged =
            runs.values().filter(|it| it.state.is_final() && it.parent.is_some() || first(it));
        judged
            .map(|run| {
                let records = block_on(onward.run(run.id).history())??;
                Ok(origin(run, &runs).map(|origin| (origin, records)))
            })
            .filter_map(Result::transpose)
            .collect()
    }

    /// All runs of the play.
    fn runs(&self) -> Result<BTreeMap<RunId, Run>, Error> {
        let mut runs = BTreeMap::new();
        let mut query = Query { limit: PAGE_ROWS_MAX, ..Query::default() };
        loop {
            let page = block_on(self.store.list(query.clone()))??;
            query.before = page.runs.last().map(|run| run.id);
            runs.extend(page.runs.into_iter().map(|run| (run.id, run)));
            if !page.more {
                return Ok(runs);
            }
        }
    }
}

/// Where a run came from, which is the same in each play. Nothing for one that goes on for another, and
/// for its children: its id is another one in each play, and so is what it makes of that.
fn origin(run: &Run, all: &BTreeMap<RunId, Run>) -> Option<String> {
    match (run.continued_from, &run.parent) {
        (Some(_), _) => None,
        (None, Some(parent)) => {
            let of_parent = origin(all.get(&parent.run)?, all)?;
            Some(format!("{of_parent}{} > ", parent.step))
        }
        (None, None) => Some(String::new()),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| Error::new(crate::Code::WorkerStopped).because(source))
}

fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Error> {
    Ok(runtime()?.block_on(future))
}
