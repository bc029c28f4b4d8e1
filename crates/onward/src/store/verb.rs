//! The data of the store's verbs: what goes in and what comes out.
//!
//! Owns: plain data, with public fields, so that an outside store can make and read it. Never
//! decides anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Gather, Mark, Signal};
use crate::codec::Unreadable;
use crate::json::Fingerprint;
use crate::{
    Code, Failure, Json, OnConflict, Record, Run, RunId, RunState, Timestamp, Waits, WorkerId,
};

/// The fenced right to advance one run: this worker, in this attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The run.
    pub run: RunId,
    /// The worker that holds it.
    pub worker: WorkerId,
    /// The number of the claim; a later claim has a higher one.
    pub attempt: u32,
}

/// A record of a run, by its number and its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRef {
    /// Its number in the run's history.
    pub seq: u64,
    /// Its step.
    pub step: Arc<str>,
}

impl RecordRef {
    /// The name of this record.
    pub fn of(record: &Record) -> Self {
        Self { seq: record.seq, step: record.step.as_str().into() }
    }
}

/// Records to add to a run's history.
#[derive(Clone, Debug, Default)]
pub struct Append {
    /// The latest records that the store has acknowledged to whoever writes: it must have them, or it has
    /// gone back to an earlier state.
    pub follows: Vec<RecordRef>,
    /// The records.
    pub records: Vec<Record>,
}

impl From<Vec<Record>> for Append {
    /// Records that follow nothing.
    fn from(records: Vec<Record>) -> Self {
        Self { follows: Vec::new(), records }
    }
}

/// A run to start.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its name, made by the engine: a repeated start is known by it.
    pub id: RunId,
    /// The workflow.
    pub workflow: String,
    /// The queue.
    pub queue: String,
    /// The lane of the queue, where the queue has a limit for each.
    pub lane: Option<String>,
    /// Higher is claimed first.
    pub priority: i32,
    /// What it is started with.
    pub input: Json,
    /// The caller's name for it.
    pub key: Option<NewKey>,
    /// When it may first be claimed.
    pub start_at: StartAt,
    /// How long after that time it fails if it has not ended.
    pub timeout_ms: Option<i64>,
    /// The caller's labels.
    pub tags: BTreeMap<String, String>,
    /// Who starts it, for the audit of duplicates.
    pub caller: String,
    /// The run that starts it as its child, under its holder's lease: without that lease nothing
    /// is started.
    pub parent: Option<NewParent>,
    /// A worker of this process with a free place, which claims a new run in the same
    /// transaction if it is due. Not claimed (only queued) when that worker is lost.
    pub claimant: Option<Claimant>,
}

/// The run that starts another as its child.
#[derive(Clone, Debug)]
pub struct NewParent {
    /// The right to advance that run.
    pub lease: Lease,
    /// The step there that the child's end is told to.
    pub step: String,
    /// Whether the child goes on when that run is cancelled.
    pub detached: bool,
}

/// A worker that may claim a run as it is started.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// The worker.
    pub worker: WorkerId,
    /// Its build.
    pub build: String,
}

/// The key of a run to start.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// The key.
    pub key: String,
    /// The fingerprint of the input.
    pub fingerprint: Fingerprint,
    /// How long after the start the key is kept; `None`: as long as the run.
    pub ttl_ms: Option<i64>,
    /// What to do when it is in use.
    pub on_conflict: OnConflict,
    /// How starts that come soon after one another become one run; `on_conflict` says nothing then.
    pub gather: Option<Gather>,
}

/// When a run may first be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At once.
    Now,
    /// This many milliseconds from now.
    After(i64),
    /// At this time.
    At(Timestamp),
}

/// What a start did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The run that the caller gets.
    pub run: RunId,
    /// How it came about.
    pub how: StartedHow,
    /// When the run was created.
    pub at: Timestamp,
}

/// How a start came by its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedHow {
    /// It is new. A repeat of the same start says so again.
    New,
    /// It is new, and the claimant holds it in attempt 1.
    Claimed,
    /// It was there; this start is counted as a duplicate.
    Existing,
    /// It was there and had failed; it goes on.
    Retried,
    /// It is new, and takes the key from this run, which was asked to end.
    Replaced(RunId),
}

/// A worker to enter.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// Its name, fresh for each start.
    pub id: WorkerId,
    /// The build of its code.
    pub build: String,
    /// The host and process it lives in, for people.
    pub place: String,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The workflows it serves.
    pub workflows: Vec<String>,
    /// How long its lease lasts without renewal.
    pub lease_ms: i64,
    /// How many runs it executes at once.
    pub concurrency: u32,
}

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Until when the lease holds.
    pub until: Timestamp,
    /// The runs that the worker holds, in the order of their ids. A run that it holds but does not
    /// execute is executed by nobody.
    pub held: Vec<Lease>,
    /// Whether the store is another than the one that the worker joined, or an earlier state of it, so that
    /// it may lack what it had acknowledged. Then the worker gives its runs back and joins anew.
    pub moved: bool,
}

/// A claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The worker.
    pub worker: WorkerId,
    /// The number of this claim, one higher for each new claim of the worker; a repeat after a
    /// lost answer carries the same.
    pub ticket: i64,
    /// The worker's build.
    pub build: String,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The workflows it serves.
    pub workflows: Vec<String>,
    /// How many runs it takes at most. With 0 it only reads its marks and the next due time.
    pub limit: usize,
    /// Which runs it takes.
    pub mode: ClaimMode,
}

/// Which runs a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// Those that are not suspects.
    Ordinary,
    /// One suspect.
    Suspect,
}

/// What a claim answers.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// The runs, with their histories.
    pub runs: Vec<Claimed>,
    /// The worker's running runs that somebody asked to end, or paused.
    pub marks: Vec<Mark>,
    /// When the next waiting run of any queue wakes, or the rate of a queue allows the next run, or when
    /// the next claim would look where this one did not.
    pub next_due: Option<Timestamp>,
    /// Whether more runs that this worker serves are queued, within the limits of their queues.
    pub more: bool,
    /// Whether a suspect that this worker serves is queued, within the limits of its queue.
    pub suspect: bool,
}

/// A claimed run.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The right to advance it.
    pub lease: Lease,
    /// The run, in the state after the claim.
    pub run: Run,
    /// Its records in order, without the voided ones.
    pub history: Vec<Record>,
    /// The highest sequence number of any record of the run, voided ones included.
    pub last_seq: u64,
    /// The lowest sequence number of a voided record: after it a retry lets the function go
    /// another way than it went before.
    pub voided_seq: Option<u64>,
    /// The builds of earlier attempts, by attempt number.
    pub builds: BTreeMap<u32, String>,
    /// The signals that are not in the history yet, in the order in which they came, without those that came after
    /// the claim. They end with the one that goes past [`INBOX_BYTES_MAX`](crate::limits::INBOX_BYTES_MAX).
    pub signals: Vec<Signal>,
    /// The signal number up to which `signals` is complete. Later signals are read with `Store::inbox` after it.
    pub signals_to: u64,
    /// The first payload of it that cannot be read here, which is left as it is stored.
    pub unreadable: Option<Box<Unreadable>>,
}

impl Claimed {
    /// Bytes of payload: its input, its signals and its history.
    pub(crate) fn bytes(&self) -> usize {
        let signals = self.signals.iter().map(Signal::bytes).sum::<usize>();
        let history = self.history.iter().map(Record::bytes).sum::<usize>();
        self.run.input.as_str().len() + signals + history
    }
}

/// The end of an attempt.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The latest records that the store has acknowledged in this attempt, as in [`Append`]; none where the
    /// end does not rest on any.
    pub follows: Vec<RecordRef>,
    /// The records that are not stored yet.
    pub records: Vec<Record>,
    /// How it ends.
    pub end: End,
    /// Recorded steps that the code of this build asks for no more. The store keeps the first
    /// `MISMATCH_LISTED_MAX` of them on the run, for people; none leaves what is there.
    pub unasked: Vec<String>,
}

impl Settle {
    /// An end with its last records, under code that asked for all there is.
    pub fn new(records: Vec<Record>, end: End) -> Self {
        Self { follows: Vec::new(), records, end, unasked: Vec::new() }
    }
}

/// How an attempt ends.
#[derive(Clone, Debug)]
pub enum End {
    /// The run is completed, with this output.
    Completed(Json),
    /// The run failed.
    Failed {
        /// With this.
        failure: Failure,
        /// The step whose recorded failure ended it: what a retry voids.
        step: Option<String>,
    },
    /// The run is cancelled.
    Cancelled,
    /// The run is completed, and another continues under its key with a fresh history. Refused with
    /// [`Conflict::Ending`](super::Conflict::Ending) if the run is asked to end: its holder cancels it.
    Continued {
        /// The name of the run that goes on.
        run: RunId,
        /// Its input.
        input: Json,
        /// The records of signals that the function never received. They are voided, and their signals
        /// go to the next run together with those that are not recorded.
        undelivered: Vec<String>,
    },
    /// The run waits. If it was woken since `wakes_seen`, it is queued at once instead.
    Parked {
        /// When it wakes, if a time wakes it.
        wake_at: Option<Timestamp>,
        /// What it waits for.
        waits_for: Waits,
        /// The number of wakes that the holder knew of.
        wakes_seen: u64,
    },
    /// The run waits for an operator or another build. If it was woken since `wakes_seen`, it is
    /// queued at once instead. The holder's build is added to the run's `stuck_builds`.
    Stuck {
        /// Why: a code such as `history_mismatch`.
        code: Code,
        /// What was found, for people.
        detail: String,
        /// The number of wakes that the holder knew of.
        wakes_seen: u64,
    },
    /// The run is queued at once.
    Released,
}

/// What a settle did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The run stands as the end said.
    AsSaid,
    /// The run was woken meanwhile and is queued.
    Queued,
}

/// A sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The worker that sweeps. It never sweeps itself.
    pub worker: WorkerId,
    /// Whether workers whose lease has expired may be marked lost. Those that are known to be
    /// dead are marked in any case.
    pub expired: ExpiredLeases,
}

/// What a sweep does about expired leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredLeases {
    /// Mark their workers lost: the sweeper has renewed without a gap for one lease.
    Take,
    /// Leave them: the sweeper cannot yet tell a dead worker from an outage that hit all.
    Leave,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Workers that were marked lost.
    pub lost: Vec<WorkerId>,
    /// Runs that were taken from lost or missing workers.
    pub taken: Vec<RunId>,
    /// Runs that were woken because they were due.
    pub woken: usize,
    /// Whether another pass would find work.
    pub more: bool,
    /// When a lease of another worker expires next, unless it is renewed: the time of the next
    /// look. With nobody else it may be the sweeper's own, before which one that joins now cannot
    /// have died unnoticed. `None`: the store can see a death by other means, or there is nobody
    /// else.
    pub next_at: Option<Timestamp>,
}

/// Which run is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this id.
    Id(RunId),
    /// The one that has this key.
    Key {
        /// The workflow.
        workflow: String,
        /// The key.
        key: String,
    },
}

/// Which runs a list shows. Every condition that is set must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this workflow.
    pub workflow: Option<String>,
    /// In one of these states; empty: in any.
    pub states: Vec<RunState>,
    /// In this queue.
    pub queue: Option<String>,
    /// With this key.
    pub key: Option<String>,
    /// With all these tags.
    pub tags: BTreeMap<String, String>,
    /// Started by this run, as its children.
    pub parent: Option<RunId>,
    /// Created at this time or later.
    pub created_from: Option<Timestamp>,
    /// Created before this time.
    pub created_before: Option<Timestamp>,
}

/// A list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Which runs.
    pub filter: Filter,
    /// Only runs older than this one: the last of the page before.
    pub before: Option<RunId>,
    /// How many, up to `PAGE_ROWS_MAX`.
    pub limit: usize,
}

/// A page of runs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<Run>,
    /// Whether more follow.
    pub more: bool,
}

/// A page of records, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HistoryPage {
    /// The records.
    pub records: Vec<Record>,
    /// Whether more follow.
    pub more: bool,
}

/// What came with a run's key and was suppressed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicates {
    /// How many there were.
    pub count: u64,
    /// The latest of them, newest first, up to `DUPLICATES_KEPT_MAX`.
    pub latest: Vec<Duplicate>,
}

/// One start that was suppressed because its key was in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicate {
    /// When it came.
    pub at: Timestamp,
    /// From whom.
    pub caller: String,
    /// Whether it had the same input.
    pub same_input: bool,
}
