//! The worker processes: each in a slot, with a proxy of its own between it and the server.
//!
//! Owns: starting, killing, stopping and continuing them. A process ends when its slot is dropped,
//! and by itself when we are gone: it listens for the end of its standard input.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::proxy::Proxy;
use crate::server::url_at;

/// The store's times in the URL of workers and starters: short, since a black hole is to be noticed
/// within a lease or two.
pub const TIMES: &str = "?connect_timeout=1&statement_timeout=2";

/// What every worker process is started with.
#[derive(Clone, Debug)]
pub struct Casting {
    /// The program, which is this crate's own.
    pub program: PathBuf,
    /// The database.
    pub url: String,
    /// The folder of the effects and the logs.
    pub folder: PathBuf,
    /// The workers' lease.
    pub lease: Duration,
}

impl Casting {
    /// The file of the effects.
    pub fn effects(&self) -> PathBuf {
        self.folder.join("effects")
    }
}

/// A place for one worker process after the other.
#[derive(Debug)]
pub struct Slot {
    casting: Casting,
    no: usize,
    /// Between the workers of this slot and the server.
    pub proxy: Proxy,
    child: Mutex<Option<Child>>,
    generation: AtomicU32,
    /// Whether something is being done to it that takes a while.
    busy: AtomicBool,
}

impl Slot {
    /// An empty slot.
    ///
    /// # Errors
    /// When there is no port for its proxy.
    pub fn new(casting: &Casting, no: usize) -> io::Result<Self> {
        let server = crate::server::address_of(&casting.url)?;
        Ok(Self {
            casting: casting.clone(),
            no,
            proxy: Proxy::postgres(server)?,
            child: Mutex::default(),
            generation: AtomicU32::default(),
            busy: AtomicBool::default(),
        })
    }

    /// Starts a worker in it.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn spawn(&self) -> io::Result<()> {
        let count = self.generation.fetch_add(1, Ordering::SeqCst);
        let generation = u32::try_from(self.no).unwrap_or_default() * 10_000 + count;
        let log = self.casting.folder.join(format!("worker-{}", self.no));
        let log = File::options().append(true).create(true).open(log)?;
        let mut command = Command::new(&self.casting.program);
        command.arg("worker").arg(url_at(&self.casting.url, Some(self.proxy.address()), None));
        command.arg(self.casting.effects()).arg(generation.to_string());
        command.arg(self.casting.lease.as_millis().to_string());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
        *self.child() = Some(child);
        Ok(())
    }

    /// Kills its worker with SIGKILL; `false` when there is none.
    pub fn kill(&self) -> bool {
        let Some(mut child) = self.child().take() else { return false };
        child.kill().and_then(|()| child.wait()).is_ok()
    }

    /// Stops its worker with SIGSTOP: it goes on when it is continued, and knows nothing of it.
    pub fn stop(&self) -> bool {
        self.signal(Signal::STOP)
    }

    /// Lets a stopped worker go on.
    pub fn go_on(&self) -> bool {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> bool {
        let pid = self.child().as_ref().map(|child| child.id().cast_signed());
        pid.and_then(Pid::from_raw).is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Takes the slot for something that takes a while; `false` when it is taken.
    pub fn take(&self) -> bool {
        !self.busy.swap(true, Ordering::SeqCst)
    }

    /// Gives it back.
    pub fn give_back(&self) {
        self.busy.store(false, Ordering::SeqCst);
    }

    /// Whether its worker ended by itself, which it never should.
    pub fn has_died(&self) -> bool {
        let mut child = self.child();
        child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.kill();
    }
}
