//! The store: where runs live.
//!
//! Owns: the [`Store`] trait, the data of its verbs, and the stores themselves. Each verb is one
//! transaction, bounded, and safe to repeat after an answer was lost. A store makes times and
//! keeps the fence; it makes no ids, takes no decision that belongs to the engine (the shared
//! `rules` hold those that must be taken inside a transaction), and calls nobody.

mod around;
pub(crate) mod audit;
mod coded;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod column;
pub(crate) mod delete;
pub(crate) mod gather;
mod hub;
pub(crate) mod limited;
pub(crate) mod looks;
#[cfg(any(feature = "conformance", feature = "testing"))]
pub(crate) mod lossy;
mod memory;
pub(crate) mod notebook;
mod portable;
#[cfg(feature = "postgres")]
mod postgres;
pub(crate) mod queues;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) mod reading;
#[cfg(feature = "redis")]
mod redis;
pub(crate) mod rules;
pub(crate) mod schedules;
pub(crate) mod signal;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stats;
pub(crate) mod steer;
pub(crate) mod step_key;
mod transact;
mod verb;

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, ready};
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

pub use audit::{Audit, AuditPage, AuditRow, NewAudit};
pub use coded::{CodedKeys, CodedStore};
pub use delete::{Delete, Prune, Pruned};
pub use gather::Gather;
pub use hub::{Hub, Topic, Waiter};
pub use looks::{
    EndLook, Ends, KeyConflict, KeyConflictPage, KeyLook, Looks, Minute, RunKey, RunKeyPage,
};
pub use memory::MemoryStore;
pub use notebook::{LogPage, Note, Notebook};
pub use portable::{Import, Imported, KeyHold, Portable, Trace, WholeRun};
#[cfg(feature = "postgres")]
pub(crate) use postgres::signal_said;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore, PostgresTransaction};
pub use queues::{Grant, ImportQueue, PutQueue, QueueImported, QueuePage, Queues, WholeQueue};
#[cfg(feature = "redis")]
pub use redis::{RedisKeys, RedisOptions};
pub use schedules::{
    Advance, DueSchedules, Fire, Fired, ImportSchedule, NewOccurrence, Occurred, OccurrenceInput,
    PutSchedule, Resume, ScheduleImported, SchedulePage, Schedules,
};
pub use signal::{Inbox, InboxRest, NewSignal, Signal, Signalled};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::{signal_inside, start_inside};
pub use stats::{Stats, WorkerInfo};
pub use steer::{Asks, Fork, Mark, Pause, Rewritten, Seen, Steer};
pub use step_key::{
    KeyAnswer, KeyBusy, KeyEnd, KeyHolder, KeyLease, KeyState, Keys, SettleKey, StepKey,
    StepKeyPage, TakeKey,
};
#[cfg(feature = "postgres")]
pub use transact::PostgresBody;
#[cfg(feature = "sqlite")]
pub use transact::SqliteBody;
pub use transact::{Place, Transact, Transacted, TransactionBody};
pub use verb::{
    Append, Claim, ClaimMode, Claimant, Claimed, Claims, Duplicate, Duplicates, End, ExpiredLeases,
    Filter, HistoryPage, Lease, NewKey, NewParent, NewRun, NewWorker, Query, RecordRef, Renewed,
    RunPage, Settle, Settled, StartAt, Started, StartedHow, Sweep, Swept, Which,
};

use crate::codec::Unreadable;
use crate::{Clock, Record, Run, RunId, Timestamp, WorkerId};

/// A boxed future, so that [`Store`] can be used behind a pointer.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a verb answers.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A place where runs live.
///
/// Three questions are answered by every write. *Repeated after a lost answer?* The same write
/// again gives `Ok` and changes nothing. *From a worker that lost its lease?* `LeaseLost`, and
/// nothing changes. *A crash before or after?* All of the write is there, or none of it.
///
/// For a write under a lease the checks come in this order: my identical row is there → `Ok`;
/// the fence is not mine → `LeaseLost`.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The clock whose times the store keeps. No I/O.
    fn clock(&self) -> &dyn Clock;

    /// How often whoever waits, for work or for a run, looks without a hint: the safety net only.
    fn idle_look_every(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// The store itself, if it is one on Postgres: what a start in a user's own transaction asks.
    /// No I/O.
    #[cfg(feature = "postgres")]
    fn postgres(&self) -> Option<&PostgresStore> {
        None
    }

    /// The SQLite file that the store keeps, if it keeps one: what a user's own connection must be
    /// to for a start in its transaction. No I/O.
    fn sqlite_file(&self) -> Option<&Path> {
        None
    }

    /// The store itself, if it encodes payloads for one inside: what a start in a user's own
    /// transaction, and a copy, ask. No I/O.
    fn coded(&self) -> Option<&CodedStore> {
        None
    }

    /// Starts runs, each with its key in the same transaction. The answers are in the order of
    /// the runs; one refused run does not refuse the others. At most `START_BATCH_MAX` runs.
    fn start(&self, runs: Vec<NewRun>) -> Answer<'_, Vec<Result<Started, Error>>>;

    /// Enters a worker, with a lease that runs from now. Again with the same id: `Ok` as long as
    /// it is not lost.
    fn join(&self, worker: NewWorker) -> Answer<'_, ()>;

    /// Renews a worker's lease, and returns until when it holds and which runs the worker holds.
    /// `LeaseLost` if the worker is marked lost or does not exist: a lost lease is never revived. The
    /// cost grows only with the number of the worker's own runs.
    fn renew(&self, worker: WorkerId) -> Answer<'_, Renewed>;

    /// Ends a worker. The runs that it still holds are queued in batches of `SWEEP_BATCH_MAX`, without counting a
    /// crash; the last batch also marks the worker lost. What is left after an unanswered call is a sweep's.
    /// Again, or for an unknown worker: `Ok`.
    fn leave(&self, worker: WorkerId) -> Answer<'_, ()>;

    /// Wakes what is due, then gives the worker up to `limit` queued runs with their histories,
    /// highest priority first, then longest due. A claim with a `ticket` that was already used
    /// answers with the runs that it took then and this worker still holds in that attempt.
    fn claim(&self, claim: Claim) -> Answer<'_, Claims>;

    /// Adds records to a run's history. A step ends once, and a try of it is recorded once; that
    /// each record has a number of its own is the holder's care. `HistoryLost` if the store has not all
    /// that the records follow; so with `transact` and `settle`.
    fn record(&self, lease: Lease, append: Append) -> Answer<'_, ()>;

    /// Executes the body of a transactional step and adds its record, in one transaction. The
    /// checks come in the usual order: the step's record by this attempt is there → it is the
    /// answer; the fence is not mine → `LeaseLost`, and the body does not execute. A body of a kind
    /// that the store does not know is refused; unless a store writes this verb, each is.
    fn transact(&self, transact: Transact) -> Answer<'_, Transacted> {
        Box::pin(ready(Ok(transact.body.refused())))
    }

    /// Ends an attempt, with its last records in the same transaction. A settled attempt leaves
    /// a trace, so that a late repeat is known after the run was claimed again.
    fn settle(&self, lease: Lease, settle: Settle) -> Answer<'_, Settled>;

    /// Keeps a signal for a run, and wakes the run if it waits for signals. One with the same name
    /// and key is there: it is the answer, or `Conflict` if it carries something else. On a run that
    /// has ended: `Conflict`.
    fn signal(&self, signal: NewSignal) -> Answer<'_, Signalled>;

    /// A page of what came in for a run after signal number `after`, with the run's marks, all of one moment. Only
    /// a caller that read up to [`InboxRest::Nothing`] may park the run, with the `wakes` of that last page.
    fn inbox(&self, run: RunId, after: u64) -> Answer<'_, Inbox>;

    /// Asks a run to end, and notes that its children must be asked too. A running run is marked, and
    /// its holder settles it; a run with nothing recorded ends at once; any other run is queued with
    /// the mark. Again: `Ok`. On a run that has ended otherwise: `Conflict`.
    fn cancel(&self, run: RunId) -> Answer<'_, Run>;

    /// Queues a failed or stuck run again and voids the failure that ended it. A run that is
    /// queued or running because of an earlier retry: `Ok`. Any other state, and a run whose undo has
    /// begun and that is not stuck in it: `Conflict`.
    fn retry(&self, run: RunId) -> Answer<'_, Run>;

    /// Marks dead workers lost, queues the runs of lost or missing workers, wakes what is due, queues
    /// stuck runs that this worker's build may fix, ends runs whose deadline has passed while nobody
    /// held them (or opens them to every build if they have something to undo), asks the children of
    /// runs that are asked to end to do so too, and forgets workers that were lost more than
    /// `LOST_WORKERS_KEPT` ago. Bounded; `more` says that another pass would find work.
    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept>;

    /// Deletes runs that ended long ago, with all that belongs to them, in one bounded batch. Not before the
    /// children of all cancelled runs are asked to end: a batch that asks some deletes nothing, and says that
    /// there is more.
    fn prune(&self, prune: Prune) -> Answer<'_, Pruned>;

    /// Registers interest, at the call and not at the first poll, so that nothing between a look
    /// at the store and the wait is missed. A hint, never the truth: look again after it.
    fn wait(&self, topic: Topic) -> Waiter;

    /// One run.
    fn get(&self, which: Which) -> Answer<'_, Option<Run>>;

    /// A page of runs, newest first. Stable while runs are added.
    fn list(&self, query: Query) -> Answer<'_, RunPage>;

    /// A page of a run's records, voided ones included, in order, after `after`.
    fn history(&self, run: RunId, after: Option<u64>, limit: usize) -> Answer<'_, HistoryPage>;

    /// What came with the key of this run and was suppressed.
    fn duplicates(&self, run: RunId) -> Answer<'_, Duplicates>;

    /// Counts of runs by state and queue, and the workers, without those known to be dead.
    fn stats(&self) -> Answer<'_, Stats>;

    /// The workers, without those known to be dead: what [`stats`](Store::stats) says of them, without
    /// counting the runs.
    fn workers(&self) -> Answer<'_, Vec<WorkerInfo>> {
        Box::pin(async { Ok(self.stats().await?.workers) })
    }

    /// How many standbys its database has while its commits wait for none of them: where one takes over, what
    /// was answered last is lost. None that a store knows of, unless it says so.
    fn unawaited_standbys(&self) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }

    /// The store as one that keeps step keys, if it does. No I/O.
    fn keys(&self) -> Option<&dyn Keys> {
        None
    }

    /// The store as one whose runs can be taken to another store, if they can. No I/O.
    fn portable(&self) -> Option<&dyn Portable> {
        None
    }

    /// The store as one that keeps schedules, if it does. No I/O.
    fn schedules(&self) -> Option<&dyn Schedules> {
        None
    }

    /// The store as one whose runs can be paused and forked, if they can. No I/O.
    fn steer(&self) -> Option<&dyn Steer> {
        None
    }

    /// The store as one that keeps what runs note on themselves, if it does. No I/O.
    fn notebook(&self) -> Option<&dyn Notebook> {
        None
    }

    /// The store as one whose queues can have limits, if they can. No I/O.
    fn queues(&self) -> Option<&dyn Queues> {
        None
    }

    /// The store as one whose keys can be looked through, if they can. No I/O.
    fn looks(&self) -> Option<&dyn Looks> {
        None
    }

    /// The store as one whose runs can be deleted one by one, if they can. No I/O.
    fn deletes(&self) -> Option<&dyn Delete> {
        None
    }

    /// The store as one that keeps an audit, if it does. No I/O.
    fn audit(&self) -> Option<&dyn Audit> {
        None
    }
}

/// What a store could not do. A variant exists only where the engine goes another way.
#[derive(Debug)]
pub enum Error {
    /// The worker is not the holder any more: drop the run, never repeat.
    LeaseLost,
    /// The store has not the records that the write follows, and that it had acknowledged: it has gone back
    /// to an earlier state, as a failover without synchronous replication does. Replay what it has.
    HistoryLost,
    /// The write contradicts what is there.
    Conflict(Conflict),
    /// There is no such run, or no such schedule.
    NotFound,
    /// The outcome is unknown or nothing was done: repeat the same write later.
    Unavailable(Outage, Box<dyn StdError + Send + Sync>),
    /// What is stored cannot be read.
    Corrupt(Box<dyn StdError + Send + Sync>),
    /// A payload cannot be read here, and can be where its key or codec is: leave it, look later.
    Unreadable(Box<Unreadable>),
}

/// What a write contradicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The key belongs to a run with another input.
    KeyInput {
        /// That run.
        run: RunId,
    },
    /// The key is in use and the caller wanted to be refused.
    KeyTaken {
        /// The run that has it.
        run: RunId,
    },
    /// The run has ended.
    Finished {
        /// That run.
        run: RunId,
    },
    /// The run is neither failed nor stuck.
    NotFailed {
        /// That run.
        run: RunId,
    },
    /// The run is asked to end, so it cannot be paused and cannot continue with another input.
    Ending {
        /// That run.
        run: RunId,
    },
    /// The run has no record of the step that it is to be forked from.
    NoSuchStep {
        /// That run.
        run: RunId,
    },
    /// The run had started a child before that step, and the child's end is not among the records
    /// before it: the fork would wait for a run that is not its child.
    ChildOpen {
        /// That run.
        run: RunId,
    },
    /// The run made a callback before that step, whose token may have been handed out, and the answer
    /// is not among the records before the step. The answer comes to the run, not to its fork.
    CallbackOpen {
        /// That run.
        run: RunId,
        /// The number of the callback.
        number: u32,
    },
    /// The run has turned back: its undo has begun.
    Undone {
        /// That run.
        run: RunId,
    },
    /// The run has not ended.
    NotEnded {
        /// That run.
        run: RunId,
    },
    /// The run was sent as many signals as it may be.
    SignalsFull {
        /// That run.
        run: RunId,
    },
    /// A run to add is there, and is not the same.
    RunDiffers {
        /// That run.
        run: RunId,
    },
    /// The key of a run to add belongs to another run.
    KeyHeld {
        /// The run to add.
        run: RunId,
        /// The run that has the key.
        holder: RunId,
    },
    /// As many queues are set up as may be.
    QueuesFull,
    /// A step key to add is there, and is not the same.
    StepKeyDiffers,
    /// The holder itself wrote another record there, or would go on as a run that is there: a
    /// fault of the engine.
    Record {
        /// That run.
        run: RunId,
    },
}

/// Why a store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// It cannot be reached, or its answer was lost.
    NoAnswer,
    /// Another program holds its lock.
    Locked,
    /// Its disk is full.
    Full,
    /// It cannot be written.
    ReadOnly,
    /// Its file was deleted, or another one is in its place.
    Replaced,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::LeaseLost => f.write_str("the lease is lost"),
            Error::HistoryLost => f.write_str("the store lost records that it had acknowledged"),
            Error::Conflict(conflict) => write!(f, "{conflict}"),
            Error::NotFound => f.write_str("no such run or schedule"),
            Error::Unavailable(outage, source) => write!(f, "{outage}: {source}"),
            Error::Corrupt(source) => write!(f, "what is stored cannot be read: {source}"),
            Error::Unreadable(unreadable) => write!(f, "{unreadable}"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Unavailable(_, source) | Error::Corrupt(source) => Some(source.as_ref()),
            Error::Unreadable(unreadable) => Some(unreadable.as_ref()),
            Error::LeaseLost | Error::HistoryLost | Error::Conflict(_) | Error::NotFound => None,
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::KeyInput { run } => write!(f, "run {run} has the key, with another input"),
            Conflict::KeyTaken { run } => write!(f, "run {run} has the key"),
            Conflict::Finished { run } => write!(f, "run {run} has ended"),
            Conflict::NotFailed { run } => write!(f, "run {run} is neither failed nor stuck"),
            Conflict::Ending { run } => write!(f, "run {run} is asked to end"),
            Conflict::NoSuchStep { run } => write!(f, "run {run} has no record of that step"),
            Conflict::ChildOpen { run } => {
                write!(f, "a child of run {run} had not ended before that step")
            }
            Conflict::CallbackOpen { run, number } => {
                write!(f, "callback {number} of run {run} had no answer before that step")
            }
            Conflict::Undone { run } => write!(f, "the undo of run {run} has begun"),
            Conflict::NotEnded { run } => write!(f, "run {run} has not ended"),
            Conflict::SignalsFull { run } => write!(f, "run {run} takes no more signals"),
            Conflict::RunDiffers { run } => write!(f, "run {run} is there, and differs"),
            Conflict::KeyHeld { run, holder } => {
                write!(f, "run {holder} has the key of run {run}")
            }
            Conflict::QueuesFull => f.write_str("too many queues are set up"),
            Conflict::StepKeyDiffers => f.write_str("the step key is there, and differs"),
            Conflict::Record { run } => write!(f, "run {run} has another record there"),
        }
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outage::NoAnswer => "the store does not answer",
            Outage::Locked => "the store is locked",
            Outage::Full => "the disk is full",
            Outage::ReadOnly => "the store cannot be written",
            Outage::Replaced => "the database file was deleted or replaced",
        })
    }
}
