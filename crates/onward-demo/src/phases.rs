//! The two phases of the work: a worker that is killed halfway, and the worker after it.
//!
//! Owns: the worker processes and the progress that is shown meanwhile. Whether all went well is
//! not decided here: if a worker makes no progress, the phase ends and the check says what is missing.

use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use onward::{Onward, RunState};
use tokio::process::{Child, Command};

use crate::evidence::{self, Recorded};
use crate::folder::Folder;
use crate::progress::Bar;
use crate::service::Services;
use crate::{Error, WORKER};

/// How often the number of completed runs is read.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// A worker under which nothing completes for this long is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a worker may take to shut down.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Phases<'a> {
    pub(crate) onward: &'a Onward,
    pub(crate) folder: &'a Folder,
    pub(crate) services: &'a Services,
}

impl Phases<'_> {
    /// Gives what was recorded when the first worker was dead and the second not started.
    pub(crate) async fn run(&self, runs: u64) -> Result<Recorded, Error> {
        let (mut first, pid) = self.start_worker(1)?;
        let mut bar = Bar::begin(format!("worker 1, pid {pid}"), runs);
        self.wait_for(runs / 2, &mut first, &mut bar).await?;
        // SIGKILL: nothing is flushed, finished or released.
        first.kill().await.map_err(Error::io("cannot kill the worker"))?;
        bar.set(self.count(RunState::Completed).await?);
        bar.end(&format!("of {runs} runs completed"));
        let cut_off = self.count(RunState::Running).await?;
        let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        anstream::eprintln!("  {red}kill -9 {pid:<13}{red:#} in the middle of {cut_off} runs");
        let recorded = evidence::recorded(self.onward).await?;

        let (mut second, pid) = self.start_worker(2)?;
        let mut bar = Bar::begin(format!("worker 2, pid {pid}"), runs);
        self.wait_for(runs, &mut second, &mut bar).await?;
        bar.end(&format!("of {runs} runs completed"));
        shut_down(second).await?;
        Ok(recorded)
    }

    /// Starts this program again as a worker, and gives its process id.
    fn start_worker(&self, process: u32) -> Result<(Child, u32), Error> {
        let program = std::env::current_exe().map_err(Error::io("cannot find this program"))?;
        let path = self.folder.path().join(format!("worker-{process}.log"));
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Error::io(format!("cannot create {}", path.display())))?;
        let addresses: Vec<_> = self.services.addresses.iter().map(ToString::to_string).collect();
        let worker = Command::new(program)
            .arg(WORKER)
            .arg("--database")
            .arg(self.folder.database())
            .args(["--process", &process.to_string(), "--services", &addresses.join(",")])
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io("cannot start the worker"))?;
        let pid = worker.id().unwrap_or_default();
        Ok((worker, pid))
    }

    /// Waits until that many runs are completed, or the worker makes no progress.
    async fn wait_for(&self, runs: u64, worker: &mut Child, bar: &mut Bar) -> Result<(), Error> {
        let mut last = (self.count(RunState::Completed).await?, Instant::now());
        loop {
            let done = self.count(RunState::Completed).await?;
            bar.set(done);
            if done >= runs {
                return Ok(());
            }
            if done > last.0 {
                last = (done, Instant::now());
            }
            let exited = worker.try_wait().map_err(Error::io("cannot watch the worker"))?;
            if exited.is_some() || last.1.elapsed() > PATIENCE {
                let log = self.folder.path().display();
                anstream::eprintln!("  the worker makes no progress; its log is in {log}");
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn count(&self, state: RunState) -> Result<u64, Error> {
        let stats = self.onward.stats().await?;
        Ok(stats.runs.get(&state).copied().unwrap_or(0))
    }
}

/// Closes the worker's stdin, which tells it to end.
async fn shut_down(mut worker: Child) -> Result<(), Error> {
    drop(worker.stdin.take());
    if tokio::time::timeout(SHUTDOWN_PATIENCE, worker.wait()).await.is_err() {
        worker.kill().await.map_err(Error::io("cannot end the worker"))?;
    }
    Ok(())
}
