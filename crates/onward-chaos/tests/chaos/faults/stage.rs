//! A stage: one database, a worker and a client that reach it through a proxy, and an audit.
//!
//! Owns: the workflow whose steps wait until the test lets them go on, and what every test checks
//! at its end: one final record per step, one body per record, and nothing out of order.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, Record, Retry, Run, RunHandle, Worker, Workflow};
use onward_chaos::audit;
use onward_chaos::proxy::Proxy;
use onward_chaos::server::{self, Server};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Only there so that a fault does not hang the suite.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a caller may be left without an answer: the store's own time for a connection and for
/// a statement, which `TIMES` sets, one after the other, and some for a busy machine.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(8);

/// The store's times, in the URL.
const TIMES: &str = "?connect_timeout=1&statement_timeout=2";

/// A lease that outlasts every fault but a long outage.
pub(crate) const LEASE_LONG: Duration = Duration::from_secs(20);

/// A lease that a long outage outlasts.
pub(crate) const LEASE_SHORT: Duration = Duration::from_millis(1_000);

/// Steps, each behind a gate of its number, then a sleep for each nap.
pub(crate) const PLAN: Workflow<Plan, u32> = Workflow::named("plan");

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) steps: u32,
    /// Milliseconds of the sleep between two steps; none when zero.
    pub(crate) nap_ms: u64,
    /// How often each step fails before it succeeds.
    pub(crate) failures: u32,
}

impl Plan {
    pub(crate) fn of_steps(steps: u32) -> Self {
        Self { steps, nap_ms: 0, failures: 0 }
    }
}

/// What the bodies of a stage share with its test.
pub(crate) struct Scene {
    /// How far the gates are open: the body of step n goes on when it is above n.
    gates: watch::Sender<u32>,
    /// How often each body began, by step id and try.
    bodies: Mutex<HashMap<(String, u32), u32>>,
    began: watch::Sender<u32>,
}

pub(crate) struct Stage {
    pub(crate) proxy: Arc<Proxy>,
    /// The way around the proxy.
    pub(crate) straight: Onward,
    pub(crate) onward: Onward,
    pub(crate) scene: Arc<Scene>,
    url: String,
    /// The shared server and the database on it.
    borrowed: Option<(String, String)>,
}

static STAGES: AtomicU32 = AtomicU32::new(0);

impl Stage {
    /// On a database of its own, on the server that all tests share.
    pub(crate) async fn shared() -> Self {
        let shared = server::shared_url().unwrap();
        let no = STAGES.fetch_add(1, Ordering::SeqCst);
        let database = format!("onward_faults_{}_{no}", std::process::id());
        let admin = server::connect(&shared).await.unwrap();
        admin.batch_execute(&format!("create database {database}")).await.unwrap();
        let mut stage = Self::at(server::url_at(&shared, None, Some(&database))).await;
        stage.borrowed = Some((shared, database));
        stage
    }

    /// On a server of its own.
    pub(crate) async fn own(server: &Server) -> Self {
        Self::at(server.url()).await
    }

    async fn at(url: String) -> Self {
        let proxy = Proxy::postgres(server::address_of(&url).unwrap()).unwrap();
        let through = server::url_at(&url, Some(proxy.address()), None);
        let straight = Onward::open(&format!("{url}{TIMES}")).await.unwrap();
        audit::install(&server::connect(&url).await.unwrap()).await.unwrap();
        let onward = Onward::open(&format!("{through}{TIMES}")).await.unwrap();
        let scene = Arc::new(Scene {
            gates: watch::Sender::new(0),
            bodies: Mutex::default(),
            began: watch::Sender::new(0),
        });
        Self { proxy: Arc::new(proxy), straight, onward, scene, url, borrowed: None }
    }

    /// The URL of the way through the proxy.
    pub(crate) fn through(&self) -> String {
        format!("{}{TIMES}", server::url_at(&self.url, Some(self.proxy.address()), None))
    }

    /// The URL of the way around the proxy.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A second way, through a proxy of its own.
    pub(crate) async fn another_way(&self) -> (Proxy, Onward) {
        let proxy = Proxy::postgres(server::address_of(&self.url).unwrap()).unwrap();
        let through = server::url_at(&self.url, Some(proxy.address()), None);
        (proxy, Onward::open(&format!("{through}{TIMES}")).await.unwrap())
    }

    /// A worker behind the proxy.
    pub(crate) async fn worker(&self, lease: Duration) -> Worker {
        self.worker_of(&self.onward, lease).await
    }

    pub(crate) async fn worker_of(&self, onward: &Onward, lease: Duration) -> Worker {
        let scene = Arc::clone(&self.scene);
        let serving = onward.worker().serve(PLAN, move |ctx, plan| {
            let scene = Arc::clone(&scene);
            async move { scene.perform(ctx, plan).await }
        });
        let linger = Duration::from_millis(20);
        serving.lease(lease).linger(linger).concurrency(50).start().await.unwrap()
    }

    /// Starts a run that a worker has to claim: from around the proxy.
    pub(crate) async fn start(&self, key: &str, plan: &Plan) -> RunHandle<u32> {
        self.straight.start(PLAN, plan).key(key).await.unwrap()
    }

    /// Waits until this many bodies have begun.
    pub(crate) async fn bodies_began(&self, count: u32) {
        let mut began = self.scene.began.subscribe();
        in_time("the bodies have begun", began.wait_for(|began| *began >= count)).await.unwrap();
    }

    /// Lets the first so many steps of every run go on.
    pub(crate) fn open(&self, gates: u32) {
        self.scene.gates.send_replace(gates);
    }

    /// Executes a statement of the test's own, around the proxy.
    pub(crate) async fn execute(&self, sql: &str) {
        server::connect(&self.url).await.unwrap().batch_execute(sql).await.unwrap();
    }

    /// How many rows a query of the test's own finds, around the proxy.
    pub(crate) async fn query(&self, sql: &str) -> usize {
        server::connect(&self.url).await.unwrap().query(sql, &[]).await.unwrap().len()
    }

    /// Every change of the store, in the order of commits.
    pub(crate) async fn changes(&self) -> Vec<audit::Change> {
        audit::read(&server::connect(&self.url).await.unwrap()).await.unwrap()
    }

    /// Checks everything that must hold whatever happened to the connection; gives the runs.
    pub(crate) async fn assert_nothing_broken(&self) -> Vec<(Run, Vec<Record>)> {
        assert_eq!(audit::check(&self.changes().await), []);
        let seen = onward_crash::check::Snapshot::read(&self.straight).await.unwrap();
        for (run, history) in &seen.runs {
            let mut ended: Vec<_> = history
                .iter()
                .filter(|record| record.entry.kind().is_final())
                .map(|record| &record.step)
                .collect();
            let records = ended.len();
            ended.sort();
            ended.dedup();
            assert_eq!(ended.len(), records, "a step of {} ended twice: {history:?}", run.id);
        }
        seen.runs
    }

    /// That no body began twice: whoever held a run kept it.
    pub(crate) fn assert_bodies_began_once(&self) {
        let bodies = self.scene.bodies.lock().unwrap();
        let again: Vec<_> = bodies.iter().filter(|(_, times)| **times != 1).collect();
        assert!(again.is_empty(), "bodies began again: {again:?}");
    }
}

impl Drop for Stage {
    /// Leaves the shared server as it was, on a thread of its own: this one may be in a runtime.
    fn drop(&mut self) {
        let Some((shared, database)) = self.borrowed.take() else { return };
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let drop = format!("drop database {database} with (force)");
                server::connect(&shared).await?.batch_execute(&drop).await
            })
        });
        if let Ok(Err(error)) = dropping.join() {
            eprintln!("a database is left behind: {error}");
        }
    }
}

impl Scene {
    async fn perform(&self, ctx: Ctx, plan: Plan) -> Result<u32, Failure> {
        let mut sum = 0;
        for number in 0..plan.steps {
            let step = ctx.step("work", async |step| {
                self.note(&step);
                self.gates.subscribe().wait_for(|open| *open > number).await?;
                if step.try_number() <= plan.failures {
                    return Err(Failure::new("not yet"));
                }
                Ok(number)
            });
            sum += step.retry(Retry::fixed(Duration::from_millis(30)).tries(3)).await?;
            if plan.nap_ms > 0 {
                ctx.sleep(Duration::from_millis(plan.nap_ms)).await;
            }
        }
        Ok(sum)
    }

    fn note(&self, step: &onward::Step) {
        let place = (step.id().to_owned(), step.try_number());
        *self.bodies.lock().unwrap().entry(place).or_default() += 1;
        self.began.send_modify(|began| *began += 1);
    }
}

pub(crate) async fn in_time<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    within(DEADLINE, what, future).await
}

pub(crate) async fn within<T>(
    time: Duration,
    what: &str,
    future: impl IntoFuture<Output = T>,
) -> T {
    let Ok(value) = tokio::time::timeout(time, future.into_future()).await else {
        panic!("waited in vain for {time:?} until {what}")
    };
    value
}

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    in_time(what, waiting).await;
}
