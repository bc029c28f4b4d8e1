//! Whole runs, out of one store and into another.
//!
//! Owns: [`Portable`], the plain data of its two verbs, and what an import does about a run that is
//! there. Never decides in which order stores are copied or when that may happen; the client does.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::rules;
use super::{Answer, Conflict, Duplicate, Error, NewKey, Settled, Signal};
use crate::json::Fingerprint;
use crate::{Failure, LogLine, Record, Run, RunId, RunState, Timestamp};

/// A store whose runs can be taken to another store, and that takes in those of another.
///
/// Beside [`Store`](super::Store), because no run needs it: it is for moving house.
/// [`Onward::copy_to`](crate::Onward::copy_to) does that with the care it needs.
///
/// ```
/// use onward::store::{Import, Imported, MemoryStore, Portable};
/// # use onward::{Onward, Workflow};
/// # use std::sync::Arc;
/// # const INDEX: Workflow<u64, ()> = Workflow::named("index");
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (old, new) = (Arc::new(MemoryStore::new()), MemoryStore::new());
/// # Onward::with_store(old.clone()).start(INDEX, &7).key("item-7").await?;
/// let runs = old.export(None, 100).await?;
/// let import = Import { runs, dry_run: false };
/// assert_eq!(new.import(import.clone()).await?, Imported { new: 1, there: 0 });
/// // The same again finds the run there, and passes over it.
/// assert_eq!(new.import(import).await?, Imported { new: 0, there: 1 });
/// # Ok(()) }
/// ```
pub trait Portable: Send + Sync {
    /// Runs as they stand, with all that belongs to them, in the order of their ids, after `after`.
    /// At most `COPY_BATCH_MAX` of them, and none more once `COPY_BYTES_MAX` or `COPY_ROWS_MAX` is reached; none at
    /// all: there are no more. All of them as of one moment.
    fn export(&self, after: Option<RunId>, limit: usize) -> Answer<'_, Vec<WholeRun>>;

    /// Adds runs as they are given, all of them or none. One that is there and the same is passed
    /// over, so a repeat changes nothing. One that is there and differs, that is given twice, or
    /// whose key another run has: `Conflict`. At most `COPY_BATCH_MAX` runs.
    fn import(&self, import: Import) -> Answer<'_, Imported>;
}

/// A run with all that a store keeps about it.
///
/// What no store keeps for a run that nobody holds is left out: the claim's ticket. So a run that
/// is running comes out as one whose worker is missing, which is what it is elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeRun {
    /// The run, with its input, output and tags.
    pub run: Run,
    /// Its history in order, voided records included.
    pub records: Vec<Record>,
    /// Its ended attempts, by number. That of the attempt which ended the run is always among
    /// them, whether the store keeps it or can tell it from the run.
    pub attempts: BTreeMap<u32, Trace>,
    /// The step whose recorded failure ended it: what a retry voids.
    pub failed_step: Option<String>,
    /// Its hold on its key; nothing when another run has that key, or none.
    pub hold: Option<KeyHold>,
    /// The latest starts that its key suppressed, oldest first, each with the id that its run
    /// would have had.
    pub suppressed: Vec<(RunId, Duplicate)>,
    /// The signals that came for it, in order.
    pub signals: Vec<Signal>,
    /// The lines of its log that are kept, in order.
    pub log: Vec<LogLine>,
    /// Whether children of it are still to be asked to end, because it was. It is something to do
    /// and nothing that happened: a run is the same with and without it.
    pub cascades: bool,
}

/// What is left of an ended attempt: a late repeat of its settle is known by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The build of its worker.
    pub build: String,
    /// What the settle answered; `None` when the worker was lost instead.
    pub settled: Option<Settled>,
}

/// A run's hold on its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHold {
    /// The fingerprint of the input that the key came with.
    pub fingerprint: Fingerprint,
    /// When the key is free again; `None`: when the run is pruned.
    pub expires_at: Option<Timestamp>,
}

/// An import.
#[derive(Clone, Debug)]
pub struct Import {
    /// The runs.
    pub runs: Vec<WholeRun>,
    /// Whether to look only.
    pub dry_run: bool,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Runs that were added, or would be.
    pub new: u64,
    /// Runs that were there, the same in everything.
    pub there: u64,
}

impl WholeRun {
    /// Bytes of payload: the run's, its history's and its audit's.
    pub fn bytes(&self) -> usize {
        let tags = self.run.tags.iter().map(|(name, value)| name.len() + value.len());
        let callers = self.suppressed.iter().map(|(_, duplicate)| duplicate.caller.len());
        self.run.input.as_str().len()
            + self.run.output.as_ref().map_or(0, |output| output.as_str().len())
            + self.run.failure.as_ref().map_or(0, Failure::bytes)
            + self.records.iter().map(Record::bytes).sum::<usize>()
            + self.signals.iter().map(Signal::bytes).sum::<usize>()
            + self.log.iter().map(|line| line.text.len()).sum::<usize>()
            + tags.chain(callers).sum::<usize>()
    }

    /// Rows that grow in number with what the run did: its records, signals and lines.
    pub(crate) fn rows(&self) -> usize {
        self.records.len() + self.signals.len() + self.log.len()
    }

    /// Bytes of the signals that came for it.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn signal_bytes(&self) -> u64 {
        self.signals.iter().map(|signal| signal.bytes() as u64).sum()
    }

    /// The run as the sweep leaves it that takes it from its lost worker. The loss is dated at the
    /// latest time that the run knows of, so that a second copy of it is the same.
    #[must_use]
    pub(crate) fn taken_back(mut self) -> Self {
        if self.run.state != RunState::Running {
            return self;
        }
        let (attempt, run) = (self.run.attempt, &mut self.run);
        let known = [Some(run.created_at), run.started_at, run.cancel_at, run.retried_at];
        let recorded = self.records.iter().map(|record| record.at);
        let lost_at = known.into_iter().flatten().chain(recorded).max().unwrap_or(run.created_at);
        let progressed = self.records.iter().any(|record| record.attempt == attempt);
        let build = run.build.clone().unwrap_or_default();
        self.attempts.insert(attempt, Trace { build, settled: None });
        rules::lose(run, progressed, lost_at);
        self
    }

    /// The run without a hold that has expired: an expired key has no holder.
    #[must_use]
    pub(crate) fn seen_at(mut self, now: Timestamp) -> Self {
        self.hold = self.hold.filter(|hold| hold.is_live(now));
        self
    }

    /// The workflow and key that the run has.
    pub(crate) fn held_key(&self) -> Option<(&str, &str)> {
        self.hold.as_ref()?;
        Some((&self.run.workflow, self.run.key.as_deref()?))
    }
}

impl Trace {
    /// The number and the trace of the attempt that ended this run, if one did. A store need not
    /// keep it, since the run tells it.
    pub fn of_end(run: &Run) -> Option<(u32, Trace)> {
        let ended = run.state.is_final() && run.attempt > 0;
        let build = run.build.clone().unwrap_or_default();
        ended.then_some((run.attempt, Trace { build, settled: Some(Settled::AsSaid) }))
    }
}

impl KeyHold {
    /// The hold that a run started `now` has on its key.
    pub(crate) fn of(key: &NewKey, now: Timestamp) -> Self {
        let expires_at = key.ttl_ms.map(|ttl| Timestamp::from_millis(now.as_millis() + ttl));
        Self { fingerprint: key.fingerprint, expires_at }
    }

    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires| expires > now)
    }
}

/// What is in a store where a run is to be added.
#[derive(Debug)]
pub(crate) struct Site {
    /// The run with that id.
    pub(crate) there: Option<WholeRun>,
    /// The run that has its key.
    pub(crate) holder: Option<RunId>,
}

/// Sorts out an import: the runs that are to be added, as of `now`, and how many are there.
/// `look` says what is in the store where a run is to be added.
pub(crate) fn sort_out<E: From<Error>>(
    import: &Import,
    now: Timestamp,
    mut look: impl FnMut(&WholeRun) -> Result<Site, E>,
) -> Result<(Vec<WholeRun>, u64), E> {
    let mut new: Vec<WholeRun> = Vec::new();
    let mut keys: HashMap<(String, String), RunId> = HashMap::new();
    let mut ids = HashSet::new();
    let mut there = 0;
    for whole in &import.runs {
        let whole = whole.clone().seen_at(now);
        let run = whole.run.id;
        let site = look(&whole)?;
        let cascades = whole.cascades;
        let same = site.there.map(|old| WholeRun { cascades, ..old.seen_at(now) } == whole);
        if same == Some(false) || !ids.insert(run) {
            return Err(Error::Conflict(Conflict::RunDiffers { run }).into());
        }
        if same == Some(true) {
            there += 1;
            continue;
        }
        if let Some((workflow, key)) = whole.held_key() {
            let earlier = keys.insert((workflow.to_owned(), key.to_owned()), run);
            if let Some(holder) = site.holder.or(earlier) {
                return Err(Error::Conflict(Conflict::KeyHeld { run, holder }).into());
            }
        }
        new.push(whole);
    }
    Ok((new, there))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{CRASHES_MAX, SUSPECT_CRASHES};
    use crate::{Entry, Json, Waits, WorkerId};

    const START: Timestamp = Timestamp::from_millis(1_000);

    fn running(crashes: u32) -> WholeRun {
        let mut run = Run::fresh(RunId::new(), "index".to_owned(), Json::stored("1"), START);
        rules::claim(&mut run, WorkerId::new(), "b1", START);
        run.crashes = crashes;
        WholeRun {
            run,
            records: Vec::new(),
            attempts: BTreeMap::new(),
            failed_step: None,
            hold: None,
            suppressed: Vec::new(),
            signals: Vec::new(),
            log: Vec::new(),
            cascades: false,
        }
    }

    #[test]
    fn a_run_of_a_lost_worker_is_queued_at_the_last_time_it_knows() {
        let mut whole = running(0);
        let at = Timestamp::from_millis(5_000);
        whole.records.push(Record::new(1, "pay", Entry::Fired, at));
        let taken = whole.clone().taken_back();
        assert_eq!((taken.run.state, taken.run.due_at), (RunState::Queued, Some(at)));
        assert_eq!((taken.run.worker, taken.run.wakes, taken.run.crashes), (None, 1, 0));
        assert_eq!(taken.attempts[&1], Trace { build: "b1".to_owned(), settled: None });
        assert_eq!(whole.taken_back(), taken, "a second copy is the same");
        assert_eq!(taken.clone().taken_back(), taken, "what is not running stays");
    }

    #[test]
    fn a_suspect_of_a_lost_worker_stays_one() {
        let suspect = running(SUSPECT_CRASHES - 1).taken_back().run;
        assert_eq!(suspect.waits_for, Some(Waits::Backoff { crashes: SUSPECT_CRASHES }));
        let looping = running(CRASHES_MAX - 1).taken_back().run;
        assert!(matches!(looping.waits_for, Some(Waits::Stuck { .. })));
        assert_eq!(looping.stuck_builds, ["b1"]);
    }

    #[test]
    fn only_the_attempt_that_ended_a_run_can_be_told_from_it() {
        let mut run = running(0).run;
        assert_eq!(Trace::of_end(&run), None);
        run.state = RunState::Completed;
        let trace = Trace { build: "b1".to_owned(), settled: Some(Settled::AsSaid) };
        assert_eq!(Trace::of_end(&run), Some((1, trace)));
        run.attempt = 0;
        assert_eq!(Trace::of_end(&run), None);
    }
}
