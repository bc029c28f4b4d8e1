//! A run that aborts its process, beside innocent ones, with real processes.
//!
//! A process is this test program itself, started again: it serves until it dies, and the test starts
//! the next.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use onward::limits::CONCURRENCY_DEFAULT;
use onward::{Clock as _, Ctx, Failure, Onward, RunId, RunState, SystemClock};

use super::WORK;
use crate::database::Schema;
use crate::relaunch;

const URL: &str = "ONWARD_SUSPECT_URL";
const LOG: &str = "ONWARD_SUSPECT_LOG";

/// How many processes serve, and how many innocent runs there are beside the one that kills.
#[derive(Clone, Copy)]
struct Cast {
    processes: usize,
    innocents: usize,
}

const FEW: Cast = Cast { processes: 2, innocents: 20 };

/// More than the one process executes at once.
const FULL: Cast = Cast { processes: 1, innocents: CONCURRENCY_DEFAULT + 10 };

/// Short, so that what the dead hold is taken over soon where nobody knows whose process is gone.
const LEASE: Duration = Duration::from_millis(800);

/// How long after its last crash each innocent run is done.
const SOON: i64 = 10_000;

const DEADLINE: Duration = Duration::from_secs(90);

/// Not a test of its own: the process that the tests start. It serves until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_process() {
    let (Ok(url), Ok(log)) = (std::env::var(URL), std::env::var(LOG)) else { return };
    let log = OpenOptions::new().append(true).create(true).open(log).unwrap();
    let log: &'static File = Box::leak(Box::new(log));
    let onward = Onward::open(&url).await.unwrap();
    let worker =
        onward.worker().lease(LEASE).serve(WORK, move |ctx: Ctx, name: String| async move {
            let run = ctx.run_id();
            let body = ctx.step("work", async |_| {
                write(log, "begin", &run.to_string());
                // Long enough that whoever began beside the killer dies with it.
                tokio::time::sleep(Duration::from_millis(if name == "killer" { 150 } else { 300 }))
                    .await;
                if name == "killer" {
                    write(log, "crash", "-");
                    std::process::abort();
                }
                Ok::<_, Failure>(())
            });
            body.await
        });
    let _worker = worker.start().await.unwrap();
    std::future::pending::<()>().await;
}

fn write(mut log: &File, what: &str, run: &str) {
    let line = format!("{} {} {what} {run}\n", now_ms(), std::process::id());
    log.write_all(line.as_bytes()).unwrap();
}

fn now_ms() -> i64 {
    SystemClock.now().as_millis()
}

/// The processes of a test. None outlives it.
struct Crew(Vec<Child>);

impl Crew {
    /// Starts a process in the place of each that has died.
    fn fill(&mut self, processes: usize, url: &str, log: &Path) {
        self.0.retain_mut(|process| process.try_wait().unwrap().is_none());
        while self.0.len() < processes {
            let mut process = relaunch::test(module_path!(), "worker_process");
            process.env(URL, url).env(LOG, log).stderr(std::process::Stdio::null());
            self.0.push(process.spawn().unwrap());
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// When a run's process crashed last while it executed it.
fn last_crashes(log: &Path) -> HashMap<RunId, i64> {
    let text = std::fs::read_to_string(log).unwrap();
    let (mut began, mut crashed) = (HashMap::<&str, Vec<RunId>>::new(), HashMap::new());
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [at_ms, process, what, run] = words.as_slice() else { panic!("{line}") };
        match *what {
            "begin" => began.entry(process).or_default().push(run.parse().unwrap()),
            _ => {
                let at_ms: i64 = at_ms.parse().unwrap();
                let died = began.remove(process).unwrap_or_default();
                crashed.extend(died.into_iter().map(|run| (run, at_ms)));
            }
        }
    }
    crashed
}

/// Each is done soon after its last crash, whatever the killer goes on to do.
async fn innocents_end(cast: Cast, url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let onward = Onward::open(url).await.unwrap();
    let mut runs = Vec::new();
    let Cast { processes, innocents } = cast;
    for number in 0..=innocents {
        let name = if number == innocents / 2 { "killer" } else { "innocent" };
        let run = onward.start(WORK, &name.to_owned()).await.unwrap();
        if name == "innocent" {
            runs.push(run);
        }
    }
    let (mut crew, begun) = (Crew(Vec::new()), Instant::now());
    let mut ended = Vec::new();
    while ended.len() < runs.len() {
        assert!(begun.elapsed() < DEADLINE, "{} of {} are done", ended.len(), runs.len());
        crew.fill(processes, url, &log);
        tokio::time::sleep(Duration::from_millis(20)).await;
        ended.clear();
        for run in &runs {
            ended.extend(run.status().await.unwrap().finished_at.map(|at| (run.id(), at)));
        }
    }
    let crashed = last_crashes(&log);
    assert!(!crashed.is_empty(), "nothing has crashed");
    for (run, ended_at) in ended {
        // One that finished beside the killer before it crashed did not crash.
        let Some(crashed_at) = crashed.get(&run) else { continue };
        let after_ms = ended_at.as_millis() - crashed_at;
        assert!(after_ms <= SOON, "a run was done {after_ms} ms after its last crash");
    }
}

/// A history, or a signal, may be what kills a process: it dies before it executes any of the run.
async fn is_blamed_for_what_its_history_does(url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let onward = Onward::open(url).await.unwrap();
    let served = || {
        let worker = onward.worker().lease(LEASE).linger(Duration::ZERO);
        worker.serve(WORK, async |ctx: Ctx, _: String| {
            ctx.step("first", async |_| Ok::<_, Failure>(())).await?;
            ctx.signal::<()>("go").await
        })
    };
    let worker = served().start().await.unwrap();
    let run = onward.start(WORK, &"innocent".to_owned()).await.unwrap();
    while run.status().await.unwrap().state != RunState::Waiting {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    worker.shutdown().await.unwrap();
    run.signal("go", &()).await.unwrap();
    for _ in 0..3 {
        let mut process = relaunch::test(module_path!(), "worker_process");
        process.env(URL, url).env(LOG, folder.path().join("log"));
        process.env("ONWARD_FAILPOINT", "claim.load");
        let mut process = process.stderr(std::process::Stdio::null()).spawn().unwrap();
        assert!(!process.wait().unwrap().success());
    }
    let worker = served().start().await.unwrap();
    tokio::time::timeout(DEADLINE, run.result()).await.unwrap().unwrap();
    worker.shutdown().await.unwrap();
    let claims = run.status().await.unwrap().attempt;
    assert_eq!(claims, 5, "one before, one for each death, and the last");
}

#[tokio::test]
async fn a_run_is_blamed_for_what_its_history_does_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    is_blamed_for_what_its_history_does(&url).await;
}

#[tokio::test]
async fn a_run_is_blamed_for_what_its_history_does_on_postgres() {
    let schema = Schema::new();
    is_blamed_for_what_its_history_does(&schema.url()).await;
}

async fn innocents_end_on_sqlite(cast: Cast) {
    let folder = tempfile::tempdir().unwrap();
    innocents_end(cast, &format!("sqlite:{}", folder.path().join("onward.db").display())).await;
}

#[tokio::test]
async fn a_killer_holds_nobody_up_on_sqlite() {
    innocents_end_on_sqlite(FEW).await;
}

#[tokio::test]
async fn a_killer_holds_nobody_up_on_postgres() {
    let schema = Schema::new();
    innocents_end(FEW, &schema.url()).await;
}

#[tokio::test]
async fn a_killer_in_a_full_process_holds_nobody_up_on_sqlite() {
    innocents_end_on_sqlite(FULL).await;
}

#[tokio::test]
async fn a_killer_in_a_full_process_holds_nobody_up_on_postgres() {
    let schema = Schema::new();
    innocents_end(FULL, &schema.url()).await;
}
