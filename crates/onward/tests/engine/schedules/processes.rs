//! Ten real processes on one store, all of which fire one schedule: each time has one run.
//!
//! A process is this test program itself, started again; it serves until it is killed.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::{Duration, Instant};

use onward::limits::SCHEDULE_EVERY_MIN;
use onward::{Onward, Overlap, RunState};

use super::{REPORT, input, report, runs};
use crate::relaunch;

const URL: &str = "ONWARD_SCHEDULES_URL";

const PROCESSES: usize = 10;

/// Times of the schedule that are waited for.
const TIMES: usize = 4;

const DEADLINE: Duration = Duration::from_secs(90);

/// Not a test of its own: the process that the tests start, and kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let onward = Onward::open(&url).await.unwrap();
    let _worker = onward.worker().serve(REPORT, report).start().await.unwrap();
    std::future::pending::<()>().await;
}

/// The processes of a test. None outlives it.
struct Crew(Vec<Child>);

impl Crew {
    fn start(url: &str) -> Self {
        let process =
            |_| relaunch::test(module_path!(), "worker_process").env(URL, url).spawn().unwrap();
        Self((0..PROCESSES).map(process).collect())
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

async fn fire_once(url: &str) {
    const NAME: &str = "every second";
    let onward = Onward::open(url).await.unwrap();
    let crew = Crew::start(url);
    let begun = Instant::now();
    let wait = async |what: &str| {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    while onward.stats().await.unwrap().workers.len() < PROCESSES {
        wait("not all processes have come up").await;
    }
    let setup = onward.schedule(NAME).every(SCHEDULE_EVERY_MIN).overlap(Overlap::Allow);
    setup.start(REPORT, &input()).await.unwrap();
    let done = |runs: &[onward::Run]| {
        runs.iter().filter(|run| run.state == RunState::Completed).count() >= TIMES
    };
    while !done(&runs(&onward, NAME).await) {
        wait("the schedule does not come often enough").await;
    }
    onward.schedule(NAME).pause().await.unwrap();
    drop(crew);

    let runs = runs(&onward, NAME).await;
    let times: Vec<_> = runs.iter().map(|run| run.tags["scheduled_at"].clone()).collect();
    let distinct: BTreeSet<_> = times.iter().collect();
    assert_eq!(distinct.len(), times.len(), "no time has two runs: {times:?}");
    assert!(runs.iter().all(|run| run.duplicates == 0), "and nobody tried to start a second");
    let at = |run: &onward::Run| {
        let key = run.key.clone().unwrap();
        let time = key.rsplit('/').next().unwrap().to_owned();
        humantime::parse_rfc3339(&time).unwrap()
    };
    let mut fired: Vec<_> = runs.iter().map(at).collect();
    fired.sort_unstable();
    let gaps = fired.windows(2).map(|two| two[1].duration_since(two[0]).unwrap());
    assert!(gaps.into_iter().all(|gap| gap == SCHEDULE_EVERY_MIN), "none was left out: {times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_processes_on_one_sqlite_file_fire_once() {
    let folder = tempfile::tempdir().unwrap();
    fire_once(&format!("sqlite:{}", folder.path().join("onward.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_processes_on_one_postgres_schema_fire_once() {
    fire_once(&crate::database::Schema::new().url()).await;
}
