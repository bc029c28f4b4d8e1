//! A stage: one database, its victims one after the other or side by side, and their story.
//!
//! Owns: starting, killing and awaiting victims, and the snapshots between them. Every wait is
//! for a condition, with a deadline.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use onward_crash::check::{self, Snapshot, Story};
use onward_crash::effect::{self, Effect};
use onward_crash::flow::{self, Input};
use onward_crash::form::{self, Form};
use rustix::process::{Pid, Signal, kill_process};

/// How long any wait may take before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

const SIGKILL: i32 = 9;

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    story: Story,
    generation: u32,
    form: Form,
    pub(crate) kills: usize,
}

/// A victim to start.
pub(crate) struct Cast {
    pub(crate) lease: Duration,
    /// The round whose runs it starts, and how many they are; `None`: it only serves.
    pub(crate) round: Option<(u32, u32)>,
    /// Where it kills itself: `name:N`.
    pub(crate) failpoint: Option<String>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Form::Plain)
    }

    /// A stage on which payloads are stored in this form.
    pub(crate) fn with(form: Form) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { folder, runtime, story: Story::default(), generation: 0, form, kills: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Notes the runs of a round as wanted.
    pub(crate) fn want_round(&mut self, round: u32, runs: u32) {
        self.story.wanted.extend(flow::round(round, runs).into_iter().map(|(_, input)| input));
    }

    /// Starts a victim, with the store as it stands noted just before. One with a round is alone;
    /// others may be at work beside one that only serves.
    pub(crate) fn spawn(&mut self, cast: &Cast) -> Victim {
        let before = if cast.round.is_some() { self.snapshot() } else { self.live_snapshot() };
        self.generation += 1;
        self.story.before.insert(self.generation, before);
        let stderr = self.path(&format!("stderr-{}", self.generation));
        let mut command = Command::new(env!("CARGO_BIN_EXE_onward-crash"));
        command.arg(self.path("db")).arg(self.path("effects"));
        command.arg(self.generation.to_string()).arg(cast.lease.as_millis().to_string());
        if let Some((round, runs)) = cast.round {
            command.arg(round.to_string()).arg(runs.to_string());
        }
        if self.form == Form::Encoded {
            command.env(form::VARIABLE, "1");
        }
        if let Some(failpoint) = &cast.failpoint {
            command.env("ONWARD_FAILPOINT", failpoint);
        }
        let child = command.stderr(File::create(&stderr).unwrap()).spawn().unwrap();
        Victim { child, generation: self.generation, stderr }
    }

    /// The store as the dead left it, read from a copy of its files: opening the file itself would
    /// mend what a kill left, and the next victim must be able to do that.
    fn snapshot(&self) -> Snapshot {
        let copy = tempfile::tempdir().unwrap();
        for name in ["db", "db-wal"] {
            let _ = fs::copy(self.path(name), copy.path().join(name));
        }
        self.read(&copy.path().join("db"))
    }

    /// The store as it stands while victims are at work on it.
    pub(crate) fn live_snapshot(&self) -> Snapshot {
        self.read(&self.path("db"))
    }

    /// Stops a victim at a moment when it does not write: one that is stopped inside a commit holds the
    /// file's only write lock, and nobody can take anything over from it.
    pub(crate) fn stop_between_writes(&self, victim: &Victim) {
        wait_until("the victim does not write", || {
            victim.signal(Signal::STOP);
            let stopped = self.is_writable();
            if !stopped {
                victim.signal(Signal::CONT);
            }
            stopped
        });
    }

    fn is_writable(&self) -> bool {
        let db = onward::rusqlite::Connection::open(self.path("db")).unwrap();
        db.busy_timeout(Duration::from_millis(20)).unwrap();
        db.execute_batch("begin immediate; rollback").is_ok()
    }

    fn read(&self, database: &Path) -> Snapshot {
        self.runtime.block_on(async {
            let url = format!("sqlite:{}", database.display());
            let onward = self.form.open(&url).await.unwrap();
            Snapshot::read(&onward).await.unwrap()
        })
    }

    /// Starts runs that wait at the gate, for the victims to claim.
    pub(crate) fn start_at_gate(&mut self, name: &str, runs: u64) {
        let url = format!("sqlite:{}", self.path("db").display());
        let inputs: Vec<Input> = (0..runs)
            .map(|number| Input { key: format!("gate-{name}-{number}"), number, laps: 0 })
            .collect();
        self.runtime.block_on(async {
            let onward = self.form.open(&url).await.unwrap();
            for input in &inputs {
                flow::start(&onward, flow::GATE, input).await.unwrap();
            }
        });
        self.story.wanted.extend(inputs);
    }

    /// Lets every body at the gate go on.
    pub(crate) fn open_gate(&self) {
        File::create(self.path("effects.gate")).unwrap();
    }

    /// Waits until every wanted run has ended.
    pub(crate) fn wait_until_ended(&self) {
        wait_until("all runs have ended", || {
            let runs = self.live_snapshot().runs;
            let ended = |input: &&Input| {
                let of_key = |run: &onward::Run| run.key.as_ref() == Some(&input.key);
                runs.iter().any(|(run, _)| of_key(run) && run.state.is_final())
            };
            self.story.wanted.iter().filter(ended).count() == self.story.wanted.len()
        });
    }

    pub(crate) fn effects(&self) -> Vec<Effect> {
        effect::read(&self.path("effects")).unwrap()
    }

    pub(crate) fn effects_bytes(&self) -> u64 {
        fs::metadata(self.path("effects")).map_or(0, |meta| meta.len())
    }

    /// Kills a victim with SIGKILL; `false` when it had ended well before.
    pub(crate) fn kill(&mut self, victim: &mut Victim) -> bool {
        if let Some(status) = victim.child.try_wait().unwrap() {
            victim.assert_well(status);
            return false;
        }
        victim.child.kill().unwrap();
        let status = victim.child.wait().unwrap();
        let killed = status.signal() == Some(SIGKILL);
        if killed {
            self.kills += 1;
        } else {
            victim.assert_well(status);
        }
        killed
    }

    /// Waits until a victim has killed itself at its failpoint.
    pub(crate) fn wait_for_death(&mut self, victim: &mut Victim) {
        let status = victim.wait();
        let said = victim.said();
        assert_eq!(status.signal(), Some(SIGKILL), "the failpoint was not reached:\n{said}");
        self.kills += 1;
    }

    /// Compares what was done with what the store says.
    pub(crate) fn assert_nothing_broken(&mut self) {
        self.story.last = self.snapshot();
        self.story.effects = self.effects();
        let breaches = check::check(&self.story);
        assert!(breaches.is_empty(), "after {} kills: {breaches:#?}", self.kills);
    }
}

/// A process of the victim. It does not outlive its test.
pub(crate) struct Victim {
    child: Child,
    pub(crate) generation: u32,
    stderr: PathBuf,
}

impl Victim {
    /// Waits for the end, whichever it is.
    fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "a victim does not end:\n{}", self.said());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until it is done, and checks that it ended well.
    pub(crate) fn wait_until_done(&mut self) {
        let status = self.wait();
        self.assert_well(status);
    }

    pub(crate) fn is_done(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn assert_well(&self, status: ExitStatus) {
        assert!(status.success(), "a victim ended with {status}:\n{}", self.said());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// What it wrote to its log.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
