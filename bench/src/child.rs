//! Another process of this program, as its parent sees it.
//!
//! Owns: the child's life, and the lines that the two say to each other. Never knows what the
//! child does; that is `role`.

use std::process::Stdio;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::bench::Fallible;
use crate::place::Place;

/// How long a child may be silent.
const PATIENCE: Duration = Duration::from_secs(600);

/// A child that lives until it is killed or its input ends. It looks for that between two shares, so
/// after a kill of its parent it does what it was told to the end.
pub(crate) struct Child {
    process: tokio::process::Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a child in a role, and waits until it is ready.
    pub(crate) async fn start(place: &Place, role: &str, numbers: &[usize]) -> Fallible<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([ARGUMENT, role, place.url()])
            .args(numbers.iter().map(ToString::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let mut child = Self { process, input, lines: BufReader::new(output).lines() };
        match child.line().await?.as_str() {
            READY => Ok(child),
            line => Err(format!("a child says {line:?} before it is ready").into()),
        }
    }

    /// What the child says next.
    pub(crate) async fn line(&mut self) -> Fallible<String> {
        match tokio::time::timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => Err("a child ended".into()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(format!("a child was silent for {PATIENCE:?}").into()),
        }
    }

    /// The time that the child says next.
    pub(crate) async fn time(&mut self) -> Fallible<Duration> {
        Ok(Duration::from_nanos(self.line().await?.parse()?))
    }

    /// Tells the child something.
    pub(crate) async fn tell(&mut self, line: &str) -> Fallible<()> {
        Ok(self.input.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// Lets the child shut down.
    pub(crate) async fn end(mut self) -> Fallible<()> {
        drop(self.input);
        let ended = self.process.wait().await?;
        if ended.success() { Ok(()) } else { Err(format!("a child ended with {ended}").into()) }
    }

    /// Ends the child with SIGKILL.
    pub(crate) async fn kill(mut self) -> Fallible<()> {
        Ok(self.process.kill().await?)
    }
}

/// The first argument of a child.
pub(crate) const ARGUMENT: &str = "child";

/// What a child says when it serves.
pub(crate) const READY: &str = "ready";

/// The time on the clock that all processes of a machine share.
pub(crate) fn shared_time() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
