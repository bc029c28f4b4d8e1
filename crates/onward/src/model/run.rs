//! A run as it stands in the store.
//!
//! Owns: [`Run`], its states and what it can wait for. Never decides how one state follows
//! another.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::QUEUE_DEFAULT;
use crate::{Code, Error, Failure, Json, Notes, RunId, RunProgress, Timestamp, WorkerId};

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It may be claimed now.
    Queued,
    /// A worker holds it.
    Running,
    /// It waits for a time, another run or an operator, and costs nothing but its row.
    Waiting,
    /// It ended with an output.
    Completed,
    /// It ended with a failure.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl RunState {
    /// Every state, in the order of a run's life.
    pub const ALL: [RunState; 6] = [
        RunState::Queued,
        RunState::Running,
        RunState::Waiting,
        RunState::Completed,
        RunState::Failed,
        RunState::Cancelled,
    ];

    /// The name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Waiting => "waiting",
            RunState::Completed => "completed",
            RunState::Failed => "failed",
            RunState::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more can happen to the run.
    pub const fn is_final(self) -> bool {
        matches!(self, RunState::Completed | RunState::Failed | RunState::Cancelled)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RunState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| Error::new(Code::InvalidOption).about(format!("no state {text:?}")))
    }
}

/// What a start does when its key is in use.
///
/// ```
/// use onward::{Code, OnConflict, Onward, Workflow};
///
/// const BILL: Workflow<u64, ()> = Workflow::named("bill");
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// onward.start(BILL, &100).key("order-7").await?;
/// let again = onward.start(BILL, &100).key("order-7").on_conflict(OnConflict::Reject);
/// assert_eq!(again.await.unwrap_err().code(), Code::KeyTaken);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Return the run that has the key; refuse another input.
    #[default]
    Existing,
    /// Refuse, whatever the input.
    Reject,
    /// As `Existing`, and a failed run goes on from the step that failed.
    RetryFailed,
    /// Cancel the run that has the key, and queue the new one behind it.
    Replace,
}

/// What a waiting run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Waits {
    /// The time it was told to start at.
    Start,
    /// That no other start with its key comes for a while: it is debounced.
    Debounce,
    /// A timer of the workflow.
    Timer {
        /// The timer's step name.
        step: String,
    },
    /// The next try of a step.
    Retry {
        /// The step's name.
        step: String,
        /// The number of the try that comes next.
        try_number: u32,
    },
    /// A step's key, which is held elsewhere. It looks again in a while, or is woken sooner.
    Key {
        /// The step's name.
        step: String,
        /// The key.
        key: String,
    },
    /// A pause after its worker died, before it is claimed again.
    Backoff {
        /// How often in a row its worker died.
        crashes: u32,
    },
    /// The end of the run that it replaces.
    Behind {
        /// That run.
        run: RunId,
        /// When it may start, at the earliest.
        start_at: Timestamp,
    },
    /// A signal.
    Signal {
        /// Its name.
        name: String,
    },
    /// The end of a run that it started.
    Child {
        /// That run.
        run: RunId,
    },
    /// A worker that can read its payloads; it is looked at again in a while.
    Readable {
        /// What cannot be read, and why.
        detail: String,
    },
    /// An operator's `retry`, or a worker of another build.
    Stuck {
        /// `crash_loop`, `history_mismatch`, `foreign_await`, `type_mismatch`, `corrupt_record`, or
        /// the code of a store that refused the run's end.
        code: String,
        /// What was found, for people.
        detail: String,
    },
}

/// A run as it stands in the store: a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// Its name.
    pub id: RunId,
    /// The workflow it is a run of.
    pub workflow: String,
    /// Where it stands.
    pub state: RunState,
    /// The queue it is routed by.
    pub queue: String,
    /// Higher is claimed first.
    pub priority: i32,
    /// The caller's name for it.
    pub key: Option<String>,
    /// What it was started with.
    pub input: Json,
    /// What it ended with, when it completed.
    pub output: Option<Json>,
    /// What it failed with, when it failed.
    pub failure: Option<Failure>,
    /// How often it was claimed.
    pub attempt: u32,
    /// The worker that holds it, while it is running.
    pub worker: Option<WorkerId>,
    /// The build of the worker that held it last.
    pub build: Option<String>,
    /// When it was started by its caller.
    pub created_at: Timestamp,
    /// When it may be claimed: the time since which it is queued, or at which it wakes.
    /// `None` while it runs, waits for something without a time, or has ended.
    pub due_at: Option<Timestamp>,
    /// When it was first claimed.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Timestamp>,
    /// When somebody asked to cancel it.
    pub cancel_at: Option<Timestamp>,
    /// When it was paused.
    pub paused_at: Option<Timestamp>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// What it waits for, while it is waiting.
    pub waits_for: Option<Waits>,
    /// How often something woke it.
    pub wakes: u64,
    /// How often in a row its worker died without a record.
    pub crashes: u32,
    /// The builds under which it got stuck, and which do not claim it again.
    pub stuck_builds: Vec<String>,
    /// How many starts with its key were suppressed.
    pub duplicates: u64,
    /// When a retry queued it, until the attempt after that ends.
    pub retried_at: Option<Timestamp>,
    /// The caller's labels.
    pub tags: BTreeMap<String, String>,
    /// The run whose work it goes on with.
    pub continued_from: Option<RunId>,
    /// The run that goes on with its work.
    pub continued_as: Option<RunId>,
    /// The run that is queued behind this one.
    pub successor: Option<RunId>,
    /// The last change of its code that left recorded steps unasked for.
    pub code_change: Option<CodeChange>,
    /// How many signals came for it.
    pub signals: u64,
    /// The run that started it as its child.
    pub parent: Option<Parent>,
    /// The run whose first records it began with.
    pub forked_from: Option<RunId>,
    /// What is noted on it.
    pub notes: Notes,
    /// The lane of its queue that it is in.
    pub lane: Option<String>,
}

/// The run that started another as its child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// That run.
    pub run: RunId,
    /// The step there that the child's end is told to.
    pub step: String,
    /// Whether the child goes on when that run is cancelled.
    pub detached: bool,
}

/// A change of code that left recorded steps of a run unasked for. They stay in its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeChange {
    /// The build whose code did not ask for them.
    pub build: String,
    /// The steps, the first few of them.
    pub unasked: Vec<String>,
    /// When that was noticed.
    pub at: Timestamp,
}

impl Run {
    /// A run as it is just after its start: queued, with everything else at its default.
    pub fn fresh(id: RunId, workflow: String, input: Json, now: Timestamp) -> Self {
        Self {
            id,
            workflow,
            state: RunState::Queued,
            queue: QUEUE_DEFAULT.to_owned(),
            priority: 0,
            key: None,
            input,
            output: None,
            failure: None,
            attempt: 0,
            worker: None,
            build: None,
            created_at: now,
            due_at: Some(now),
            started_at: None,
            finished_at: None,
            deadline_at: None,
            cancel_at: None,
            paused_at: None,
            paused_by: None,
            waits_for: None,
            wakes: 0,
            crashes: 0,
            stuck_builds: Vec::new(),
            duplicates: 0,
            retried_at: None,
            tags: BTreeMap::new(),
            continued_from: None,
            continued_as: None,
            successor: None,
            code_change: None,
            signals: 0,
            parent: None,
            forked_from: None,
            notes: Notes::default(),
            lane: None,
        }
    }

    /// How far it has come, as its code last said.
    pub fn progress(&self) -> Option<RunProgress> {
        self.notes.progress
    }
}
