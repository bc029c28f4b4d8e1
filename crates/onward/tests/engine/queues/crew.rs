//! Worker processes: this test program itself, started again, and killed.
//!
//! Owns: the processes and the log of what their bodies did. A line is one write to a file that is
//! opened for appending, so that a kill leaves whole lines only.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use onward::{Ctx, Failure, Onward, Workflow};

use super::audit::Effect;
use crate::relaunch;

pub(crate) const QUEUE: &str = "limited";

/// A run gets its lane as its input.
pub(crate) const WORK: Workflow<String, ()> = Workflow::named("work");

const URL: &str = "ONWARD_QUEUES_URL";
const LOG: &str = "ONWARD_QUEUES_LOG";

/// Runs that a process could execute: more than any limit.
const PLACES: usize = 16;

/// Short, so that what the dead hold is taken over while the test still goes on.
const LEASE: Duration = Duration::from_millis(800);

/// Not a test of its own: the process that the tests start. It serves until it is killed.
#[test]
fn worker_process() {
    let (Ok(url), Ok(log)) = (std::env::var(URL), std::env::var(LOG)) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let file = Arc::new(OpenOptions::new().append(true).create(true).open(log).unwrap());
        let onward = Onward::open(&url).await.unwrap();
        let served = onward.worker().queues([QUEUE]).serve(WORK, move |ctx: Ctx, lane: String| {
            let file = Arc::clone(&file);
            async move {
                let run = ctx.run_id().to_string();
                ctx.step("work", async |_| work(&file, &run, &lane).await).await
            }
        });
        let _worker = served.concurrency(PLACES).lease(LEASE).start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

async fn work(file: &File, run: &str, lane: &str) -> Result<(), Failure> {
    write(file, "begin", run, lane)?;
    // Any few milliseconds: they differ from run to run.
    let ms = 3 + u64::from(run.bytes().last().unwrap_or(0)) % 13;
    tokio::time::sleep(Duration::from_millis(ms)).await;
    write(file, "end", run, lane)?;
    Ok(())
}

fn write(mut file: &File, what: &str, run: &str, lane: &str) -> std::io::Result<()> {
    let line = format!("{} {} {what} {run} {lane}\n", now_us(), std::process::id());
    file.write_all(line.as_bytes())
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// The processes of one test. None outlives it.
pub(crate) struct Crew {
    url: String,
    folder: tempfile::TempDir,
    processes: Vec<Child>,
    /// When each process was killed.
    pub(crate) kills: BTreeMap<u32, u64>,
    turn: usize,
}

impl Crew {
    pub(crate) fn new(url: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { url, folder, processes: Vec::new(), kills: BTreeMap::new(), turn: 0 }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("effects")
    }

    /// Starts processes until there are so many.
    pub(crate) fn fill(&mut self, count: usize) {
        while self.processes.len() < count {
            let mut command = relaunch::test(module_path!(), "worker_process");
            command.env(URL, &self.url).env(LOG, self.log());
            self.processes.push(command.spawn().unwrap());
        }
    }

    /// Waits until bodies have written so many further lines.
    pub(crate) fn wait_for_effects(&self, lines: usize, deadline: Duration) {
        let (begun, enough) = (Instant::now(), self.effects().len() + lines);
        while self.effects().len() < enough {
            assert!(begun.elapsed() < deadline, "the workers do nothing");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills one of the processes, each in its turn.
    pub(crate) fn kill_one(&mut self) {
        self.turn += 1;
        let mut victim = self.processes.remove(self.turn % self.processes.len());
        self.kills.insert(victim.id(), now_us());
        victim.kill().unwrap();
        victim.wait().unwrap();
    }

    /// Kills all that are left; says who was killed when.
    pub(crate) fn end(&mut self) -> BTreeMap<u32, u64> {
        while !self.processes.is_empty() {
            self.kill_one();
        }
        self.kills.clone()
    }

    /// What bodies did.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        read(&self.log())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn read(path: &Path) -> Vec<Effect> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let effect = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let [at_us, pid, what, run, lane] = words.as_slice() else { panic!("{line}") };
        Effect {
            at_us: at_us.parse().unwrap(),
            pid: pid.parse().unwrap(),
            run: (*run).to_owned(),
            lane: (*lane).to_owned(),
            begins: *what == "begin",
        }
    };
    text.lines().map(effect).collect()
}
