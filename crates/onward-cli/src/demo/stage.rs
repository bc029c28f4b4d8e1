//! What is played: a worker, a SIGKILL halfway, another worker.
//!
//! Owns: the worker processes and the progress that is shown meanwhile. Whether all went well is
//! not decided here: if a worker gets nowhere, the stage ends and the check says what is missing.

use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::{Duration, Instant};

use onward::{Onward, RunState};
use tokio::process::{Child, Command};

use super::Folder;
use super::evidence::{self, Recorded};
use super::service::Services;
use crate::problem::{Problem, print_error};
use crate::progress::Progress;

/// How often the number of completed runs is read.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// A worker under which nothing completes for this long is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a worker may take to shut down.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Stage<'a> {
    pub(super) onward: &'a Onward,
    pub(super) folder: &'a Folder,
    pub(super) services: &'a Services,
}

impl Stage<'_> {
    /// Plays it; gives what was recorded when the first worker was dead and the second not born.
    pub(super) async fn play(&self, runs: u64) -> Result<Recorded, Problem> {
        let mut progress = Progress::counted(runs);
        let mut first = self.start_worker(1)?;
        let first_name = named("worker 1", &first);
        progress.name(first_name.as_str());
        self.wait_for(runs / 2, &mut first, &mut progress).await?;
        // SIGKILL: nothing is flushed, finished or released.
        first.kill().await.map_err(Problem::io("cannot kill the worker"))?;
        let recorded = evidence::recorded(self.onward).await?;
        let done = self.completed().await?;
        progress.say(&format!("  {first_name}  killed with SIGKILL at {done} of {runs}"));

        let mut second = self.start_worker(2)?;
        let second_name = named("worker 2", &second);
        progress.name(second_name.as_str());
        self.wait_for(runs, &mut second, &mut progress).await?;
        let done = self.completed().await?;
        progress.say(&format!("  {second_name}  ended at {done} of {runs}"));
        progress.end();
        shut_down(second).await?;
        Ok(recorded)
    }

    fn start_worker(&self, process: u32) -> Result<Child, Problem> {
        let program = std::env::current_exe().map_err(Problem::io("cannot find this program"))?;
        let path = self.folder.path().join(format!("worker-{process}.log"));
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Problem::io(format!("cannot create {}", path.display())))?;
        let addresses: Vec<_> = self.services.addresses.iter().map(ToString::to_string).collect();
        Command::new(program)
            .args(["--store", &self.folder.store_url(), "-v", "demo-worker"])
            .args(["--process", &process.to_string(), "--services", &addresses.join(",")])
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(Problem::io("cannot start the worker"))
    }

    /// Waits until that many runs are completed, or the worker gets nowhere.
    async fn wait_for(
        &self,
        runs: u64,
        worker: &mut Child,
        progress: &mut Progress,
    ) -> Result<(), Problem> {
        let mut last = (self.completed().await?, Instant::now());
        loop {
            let done = self.completed().await?;
            progress.set(done, format!("{done} completed"));
            if done >= runs {
                return Ok(());
            }
            if done > last.0 {
                last = (done, Instant::now());
            }
            let exited = worker.try_wait().map_err(Problem::io("cannot watch the worker"))?;
            if exited.is_some() || last.1.elapsed() > PATIENCE {
                print_error(&"the worker gets nowhere; its log is in the demo's folder");
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn completed(&self) -> Result<u64, Problem> {
        let stats = self.onward.stats().await?;
        Ok(stats.runs.get(&RunState::Completed).copied().unwrap_or(0))
    }
}

fn named(name: &str, worker: &Child) -> String {
    match worker.id() {
        Some(pid) => format!("{name}, pid {pid}"),
        None => name.to_owned(),
    }
}

/// Closes the worker's stdin, which tells it to end.
async fn shut_down(mut worker: Child) -> Result<(), Problem> {
    drop(worker.stdin.take());
    if tokio::time::timeout(SHUTDOWN_PATIENCE, worker.wait()).await.is_err() {
        worker.kill().await.map_err(Problem::io("cannot end the worker"))?;
    }
    Ok(())
}
