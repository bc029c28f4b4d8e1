//! The reference store: everything in memory behind one lock, nothing kept on disk.
//!
//! Owns: the plainest statement of what each verb means, which the other stores are compared
//! with. Never fast on purpose: it scans.

mod claim;
mod looks;
mod notebook;
mod portable;
mod queues;
mod schedules;
mod settle;
mod signal;
mod start;
mod steer;
mod step_key;
mod sweep;
mod turn;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rules::{self, Cancelling};
use super::*;
use crate::json::Fingerprint;
use crate::limits::{PAGE_ROWS_MAX, PRUNE_BATCH_MAX};
use crate::{RecordKind, RunState, SystemClock, Waits};

/// A store that lives as long as the process, for tests and for trying things out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// let onward = onward::Onward::open("memory:").await?;
/// # let _ = onward; Ok(()) }
/// ```
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    hub: Hub,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<RunId, Row>,
    workers: BTreeMap<WorkerId, WorkerRow>,
    /// By workflow and key.
    keys: HashMap<(String, String), KeyRow>,
    gathered: start::Gathered,
    step_keys: step_key::StepKeys,
    schedules: BTreeMap<String, crate::Schedule>,
    queues: BTreeMap<String, limited::Limited>,
    /// What workers were given of queues with a rate, by queue and time.
    grants: BTreeMap<(String, Timestamp), u64>,
    audit: BTreeMap<crate::AuditId, AuditRow>,
}

/// A run and what belongs to it.
struct Row {
    run: Run,
    records: Vec<Record>,
    /// Ended attempts: what a late repeat is recognised by.
    attempts: BTreeMap<u32, Trace>,
    /// The ticket of the claim that holds it.
    ticket: Option<i64>,
    /// The step whose failure ended the run.
    failed_step: Option<String>,
    duplicates: VecDeque<(RunId, Duplicate)>,
    signals: Vec<Signal>,
    /// Bytes of the signals that it was sent.
    signal_bytes: u64,
    log: Vec<crate::LogLine>,
    /// Whether children of it are to be cancelled, because it was.
    cascades: bool,
    /// The deadline for which a sweep has seen that it passed.
    late_at: Option<Timestamp>,
}

struct WorkerRow {
    worker: NewWorker,
    lease_until: Timestamp,
    lost_at: Option<Timestamp>,
}

struct KeyRow {
    run: RunId,
    fingerprint: Fingerprint,
    expires_at: Option<Timestamp>,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store on a clock of the caller's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, hub: Hub::default(), state: Mutex::default() }
    }

    /// Executes one verb as a transaction: alone, at one time, all or nothing.
    fn transact<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut State, Timestamp) -> Result<T, Error>,
    ) -> Answer<'_, T> {
        let answer = self.transact_quietly(verb);
        self.hub.notify_all();
        answer
    }

    /// As `transact`, for what gives nobody anything to do: a claim that woke its own claimer
    /// would never rest.
    fn transact_quietly<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut State, Timestamp) -> Result<T, Error>,
    ) -> Answer<'_, T> {
        let answer = verb(&mut self.lock(), self.clock.now());
        Box::pin(std::future::ready(answer))
    }

    fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> Result<T, Error>,
    ) -> Answer<'_, T> {
        Box::pin(std::future::ready(look(&self.lock())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    fn start(&self, runs: Vec<NewRun>) -> Answer<'_, Vec<Result<Started, Error>>> {
        self.transact(|state, now| {
            Ok(runs.into_iter().map(|run| start::start(state, run, now)).collect())
        })
    }

    fn join(&self, worker: NewWorker) -> Answer<'_, ()> {
        self.transact_quietly(|state, now| sweep::join(state, worker, now))
    }

    fn renew(&self, worker: WorkerId) -> Answer<'_, Renewed> {
        self.transact_quietly(|state, now| {
            let row = state.workers.get_mut(&worker).filter(|row| row.lost_at.is_none());
            let row = row.ok_or(Error::LeaseLost)?;
            row.lease_until = Timestamp::from_millis(now.as_millis() + row.worker.lease_ms);
            let until = row.lease_until;
            let runs = state.runs.values().map(|row| &row.run);
            let running = runs.filter(|run| run.state == RunState::Running);
            let lease = |run: &Run| Lease { run: run.id, worker, attempt: run.attempt };
            let mut held: Vec<_> =
                running.filter(|run| run.worker == Some(worker)).map(lease).collect();
            held.sort_by_key(|lease| lease.run);
            Ok(Renewed { until, held, moved: false })
        })
    }

    fn leave(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.transact(|state, now| {
            sweep::leave(state, worker, now);
            Ok(())
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        self.transact_quietly(|state, now| claim::claim(state, &claim, now))
    }

    fn record(&self, lease: Lease, append: Append) -> Answer<'_, ()> {
        self.transact_quietly(|state, _| settle::record(state, lease, append))
    }

    fn settle(&self, lease: Lease, settle: Settle) -> Answer<'_, Settled> {
        self.transact(|state, now| settle::settle(state, lease, settle, now))
    }

    fn signal(&self, signal: NewSignal) -> Answer<'_, Signalled> {
        self.transact(|state, now| signal::signal(state, &signal, now))
    }

    fn inbox(&self, run: RunId, after: u64) -> Answer<'_, Inbox> {
        self.read(|state| signal::inbox(state, run, after))
    }

    fn cancel(&self, run: RunId) -> Answer<'_, Run> {
        self.transact(|state, now| {
            state.cancel(run, now)?;
            Ok(state.row(run)?.run.clone())
        })
    }

    fn retry(&self, run: RunId) -> Answer<'_, Run> {
        self.transact(|state, now| {
            state.retry(run, now)?;
            Ok(state.row(run)?.run.clone())
        })
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        self.transact(|state, now| sweep::sweep(state, &sweep, now))
    }

    fn prune(&self, prune: Prune) -> Answer<'_, Pruned> {
        self.transact(|state, now| state.prune(&prune, now))
    }

    fn wait(&self, topic: Topic) -> Waiter {
        self.hub.wait(topic)
    }

    fn get(&self, which: Which) -> Answer<'_, Option<Run>> {
        let now = self.clock.now();
        self.read(|state| {
            let id = match which {
                Which::Id(id) => Some(id),
                Which::Key { workflow, key } => state.live_key(workflow, key, now).map(|k| k.run),
            };
            Ok(id.and_then(|id| state.runs.get(&id)).map(|row| row.run.clone()))
        })
    }

    fn list(&self, query: Query) -> Answer<'_, RunPage> {
        self.read(|state| {
            let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
            let mut runs: Vec<Run> = (state.runs.values().rev())
                .map(|row| &row.run)
                .filter(|run| query.before.is_none_or(|before| run.id < before))
                .filter(|run| matches(&query.filter, run))
                .take(limit + 1)
                .cloned()
                .collect();
            let more = runs.len() > limit;
            runs.truncate(limit);
            Ok(RunPage { runs, more })
        })
    }

    fn history(&self, run: RunId, after: Option<u64>, limit: usize) -> Answer<'_, HistoryPage> {
        self.read(|state| {
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let mut records: Vec<Record> = (state.row(run)?.records.iter())
                .filter(|record| after.is_none_or(|after| record.seq > after))
                .take(limit + 1)
                .cloned()
                .collect();
            let more = records.len() > limit;
            records.truncate(limit);
            Ok(HistoryPage { records, more })
        })
    }

    fn duplicates(&self, run: RunId) -> Answer<'_, Duplicates> {
        self.read(|state| {
            let row = state.row(run)?;
            let latest = row.duplicates.iter().rev().map(|(_, kept)| kept.clone()).collect();
            Ok(Duplicates { count: row.run.duplicates, latest })
        })
    }

    fn stats(&self) -> Answer<'_, Stats> {
        self.read(|state| Ok(state.stats()))
    }

    fn keys(&self) -> Option<&dyn Keys> {
        Some(self)
    }

    fn portable(&self) -> Option<&dyn Portable> {
        Some(self)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        Some(self)
    }

    fn steer(&self) -> Option<&dyn Steer> {
        Some(self)
    }

    fn notebook(&self) -> Option<&dyn Notebook> {
        Some(self)
    }

    fn queues(&self) -> Option<&dyn Queues> {
        Some(self)
    }

    fn looks(&self) -> Option<&dyn Looks> {
        Some(self)
    }

    fn deletes(&self) -> Option<&dyn Delete> {
        Some(self)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl Portable for MemoryStore {
    fn export(&self, after: Option<RunId>, limit: usize) -> Answer<'_, Vec<WholeRun>> {
        self.read(|state| Ok(portable::export(state, after, limit)))
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        self.transact(|state, now| portable::import(state, &import, now))
    }
}

impl State {
    fn row(&self, run: RunId) -> Result<&Row, Error> {
        self.runs.get(&run).ok_or(Error::NotFound)
    }

    fn row_mut(&mut self, run: RunId) -> Result<&mut Row, Error> {
        self.runs.get_mut(&run).ok_or(Error::NotFound)
    }

    fn is_lost(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_none_or(|row| row.lost_at.is_some())
    }

    fn live_key(&self, workflow: String, key: String, now: Timestamp) -> Option<&KeyRow> {
        let row = self.keys.get(&(workflow, key));
        row.filter(|row| row.expires_at.is_none_or(|expires| expires > now))
    }

    fn cancel(&mut self, run: RunId, now: Timestamp) -> Result<(), Error> {
        let has_children = self.children_to_ask(&[run]).next().is_some();
        let row = self.row_mut(run)?;
        // Those of the runs before it are its own.
        let has_children = has_children || row.run.continued_from.is_some();
        match rules::cancelling(&row.run, !row.records.is_empty())? {
            Cancelling::Already => {}
            Cancelling::Mark => {
                super::steer::unpause(&mut row.run);
                row.run.cancel_at = Some(now);
                row.run.wakes += 1;
                row.cascades |= has_children;
            }
            Cancelling::Queue => {
                super::steer::unpause(&mut row.run);
                row.run.cancel_at = Some(now);
                row.queue(now);
                row.cascades |= has_children;
            }
            Cancelling::End => {
                row.run.cancel_at.get_or_insert(now);
                self.end(run, RunState::Cancelled, now);
            }
        }
        Ok(())
    }

    /// Puts a run into a final state and lets the one behind it go.
    fn end(&mut self, run: RunId, state: RunState, now: Timestamp) {
        let Some(row) = self.runs.get_mut(&run) else { return };
        let ahead = rules::end(&mut row.run, state, now);
        row.release();
        row.cascades |= rules::cascades(state, row.run.cancel_at.is_some());
        self.leave_line(run, ahead, now);
        signal::tell_parent(self, run, now);
    }

    fn prune(&mut self, prune: &Prune, now: Timestamp) -> Result<Pruned, Error> {
        let ended_by = now.as_millis() - prune.older_than_ms;
        if !prune.dry_run && sweep::cascade(self, now)? {
            return Ok(Pruned { runs: 0, more: true });
        }
        let mut old: Vec<_> = (self.runs.values())
            .map(|row| &row.run)
            .filter(|run| prune.covers(run.state))
            .filter_map(|run| Some((run.finished_at?, run.id)))
            .filter(|(finished_at, _)| finished_at.as_millis() <= ended_by)
            .collect();
        old.sort();
        if prune.dry_run {
            return Ok(Pruned { runs: old.len() as u64, more: false });
        }
        let limit = prune.limit.clamp(1, PRUNE_BATCH_MAX);
        let more = old.len() > limit;
        old.truncate(limit);
        for (_, run) in &old {
            self.runs.remove(run);
            self.keys.retain(|_, key| key.run != *run);
        }
        Ok(Pruned { runs: old.len() as u64, more })
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for run in self.runs.values().map(|row| &row.run) {
            *stats.runs.entry(run.state).or_default() += 1;
            if run.state == RunState::Queued {
                *stats.queued.entry(run.queue.clone()).or_default() += 1;
            }
        }
        let live = self.workers.values().filter(|row| row.lost_at.is_none());
        stats.workers = live.map(|row| self.worker_info(row)).collect();
        stats
    }

    fn worker_info(&self, row: &WorkerRow) -> WorkerInfo {
        let worker = row.worker.clone();
        let held = self.runs.values().filter(|row| row.run.worker == Some(worker.id));
        WorkerInfo {
            id: worker.id,
            build: worker.build,
            place: worker.place,
            queues: worker.queues,
            workflows: worker.workflows,
            lease_until: row.lease_until,
            running: held.count() as u64,
            concurrency: Some(worker.concurrency),
        }
    }
}

impl Row {
    /// Whether this lease holds the run.
    fn is_held_by(&self, lease: Lease) -> bool {
        self.run.state == RunState::Running
            && self.run.worker == Some(lease.worker)
            && self.run.attempt == lease.attempt
    }

    /// Queues the run at once and counts it as a wake-up.
    fn queue(&mut self, now: Timestamp) {
        rules::queue(&mut self.run, now);
        self.ticket = None;
    }

    /// Takes the run from its holder.
    fn release(&mut self) {
        self.run.worker = None;
        self.ticket = None;
    }

    /// Keeps what a late repeat of this attempt's settle is recognised by.
    fn trace(&mut self, settled: Option<Settled>) {
        let build = self.run.build.clone().unwrap_or_default();
        self.attempts.insert(self.run.attempt, Trace { build, settled });
    }
}

fn matches(filter: &Filter, run: &Run) -> bool {
    filter.workflow.as_ref().is_none_or(|workflow| *workflow == run.workflow)
        && (filter.states.is_empty() || filter.states.contains(&run.state))
        && filter.queue.as_ref().is_none_or(|queue| *queue == run.queue)
        && filter.key.as_ref().is_none_or(|key| Some(key) == run.key.as_ref())
        && filter.tags.iter().all(|(name, value)| run.tags.get(name) == Some(value))
        && filter.created_from.is_none_or(|from| run.created_at >= from)
        && filter.created_before.is_none_or(|before| run.created_at < before)
        && filter.parent.is_none_or(|id| run.parent.as_ref().is_some_and(|own| own.run == id))
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("runs", &self.lock().runs.len()).finish()
    }
}
