//! Copying a store into another: for when one machine is no longer enough.
//!
//! Owns: [`CopyTo`]: that nobody serves either store, that every run, schedule and queue and the audit
//! are taken along, and that this was counted. Never changes the source, and never what is in the destination.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use crate::limits::{COPY_BATCH_MAX, COPY_PASSES_MAX, SCHEDULES_DUE_MAX};
use crate::store::{
    self, Conflict, Import, ImportQueue, ImportSchedule, Imported, Portable, QueueImported,
    ScheduleImported, Stats, Store, WholeRun, WorkerInfo,
};
use crate::{Code, Error, RunId, RunState, Timestamp};

/// A copy that is being set up; made by [`Onward::copy_to`](crate::Onward::copy_to).
#[must_use = "runs are copied when it is awaited"]
pub struct CopyTo {
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
    dry_run: bool,
    on_progress: Option<Box<dyn FnMut(CopyProgress) + Send>>,
}

/// How far a [`CopyTo`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// How often it has gone through the source, from 1: the first time copies, each later one
    /// compares, and copies what was started meanwhile.
    pub pass: u32,
    /// Runs that this pass is done with.
    pub runs: u64,
    /// Runs that the source had when the copy began.
    pub total: u64,
    /// Bytes of payload that this pass is done with.
    pub bytes: u64,
}

/// What a [`CopyTo`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Copied {
    /// Runs that are new in the destination.
    pub copied: u64,
    /// Runs that the destination had, the same in everything: of an earlier copy.
    pub existing: u64,
    /// All runs of the source, by the state that they have in the destination.
    pub runs: BTreeMap<RunState, u64>,
    /// Runs that a dead worker held; in the destination they are as a sweep leaves them.
    pub taken_back: u64,
    /// Records in the histories of these runs, voided ones included.
    pub records: u64,
    /// Keys that these runs have.
    pub keys: u64,
    /// Step keys of the source that are not free.
    pub step_keys: u64,
    /// Suppressed starts that are kept in detail with these runs.
    pub duplicates: u64,
    /// Schedules of the source, all of which are in the destination.
    pub schedules: u64,
    /// Queues of the source that have limits or are paused, all of which are so in the destination.
    pub queues: u64,
    /// Rows of the source's audit, all of which are in the destination.
    pub audits: u64,
    /// Bytes of payload of all this.
    pub bytes: u64,
    /// Workers of the source that are not marked lost, but whose lease has expired: they were
    /// taken for dead. One that was only stopped and goes on would work in the source.
    pub presumed_dead: Vec<WorkerInfo>,
    /// Whether every run of the source was compared with the destination afterwards and found
    /// the same, and the source still counted the same runs. Only a dry run says no.
    pub verified: bool,
}

/// What one pass counted.
#[derive(Default)]
struct Pass {
    number: u32,
    imported: Imported,
    /// Schedules that were added.
    schedules_new: u64,
    /// Queues that were set up.
    queues_new: u64,
    /// Rows of the audit that were added.
    audits_new: u64,
    /// Runs by state, as they stand in the source.
    states: BTreeMap<RunState, u64>,
    copied: Copied,
    /// Whether step keys were new in the destination.
    new_keys: bool,
}

impl CopyTo {
    pub(super) fn new(from: Arc<dyn Store>, to: Arc<dyn Store>) -> Self {
        Self { from, to, dry_run: false, on_progress: None }
    }

    /// Counts and compares only.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Calls back after each batch.
    pub fn on_progress(mut self, on_progress: impl FnMut(CopyProgress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(on_progress));
        self
    }

    async fn copy(mut self) -> Result<Copied, Error> {
        let before = unserved(self.from.as_ref(), "source").await?;
        unserved(self.to.as_ref(), "destination").await?;
        let total = before.runs.values().sum();
        let (mut copied, mut existing, mut schedules, mut queues) = (0, 0, 0, 0);
        for number in 1..=COPY_PASSES_MAX {
            let mut pass = self.pass(number, total).await?;
            self.copy_keys(&mut pass).await?;
            self.copy_audits(&mut pass).await?;
            copied += pass.imported.new;
            if pass.copied.schedules < schedules {
                let about = "a schedule was removed from the source meanwhile";
                return Err(Error::new(Code::StoreChanged).about(about));
            }
            schedules = pass.copied.schedules;
            if pass.copied.queues < queues {
                let about = "limits were taken from a queue of the source meanwhile";
                return Err(Error::new(Code::StoreChanged).about(about));
            }
            queues = pass.copied.queues;
            if number == 1 {
                existing = pass.imported.there;
            }
            let presumed_dead = before.workers.clone();
            let done = Copied { copied, existing, presumed_dead, ..pass.copied };
            if self.dry_run {
                return Ok(done);
            }
            let others_new = pass.schedules_new + pass.queues_new + pass.audits_new;
            if pass.imported.new + others_new == 0 && !pass.new_keys {
                unserved(self.to.as_ref(), "destination").await?;
                let after = unserved(self.from.as_ref(), "source").await?;
                check_unchanged(&before, &after, &pass.states)?;
                return Ok(Copied { verified: true, ..done });
            }
        }
        Err(Error::new(Code::StoreChanged).about("runs are still being started in the source"))
    }

    /// Goes through the source once: what is not in the destination is copied, what is there is
    /// compared.
    async fn pass(&mut self, number: u32, total: u64) -> Result<Pass, Error> {
        let mut pass = Pass { number, ..Pass::default() };
        let mut after = None;
        loop {
            let runs = portable(self.from.as_ref())?.export(after, COPY_BATCH_MAX).await?;
            let Some(last) = runs.last() else { break };
            after = Some(last.run.id);
            let now = self.from.clock().now();
            let runs: Vec<_> = runs.into_iter().map(|whole| pass.count(whole, now)).collect();
            let import = Import { runs, dry_run: self.dry_run };
            let imported = take_in(portable(self.to.as_ref())?, import, number).await?;
            pass.imported.new += imported.new;
            pass.imported.there += imported.there;
            if let Some(on_progress) = &mut self.on_progress {
                on_progress(pass.progress(total));
            }
        }
        self.copy_schedules(&mut pass).await?;
        self.copy_queues(&mut pass).await?;
        Ok(pass)
    }

    /// Goes through the schedules of the source, after its runs: what a schedule knows of its latest
    /// run is there before it.
    async fn copy_schedules(&mut self, pass: &mut Pass) -> Result<(), Error> {
        let Some(from) = self.from.schedules() else { return Ok(()) };
        let mut after = None;
        loop {
            let page = from.list_schedules(after.take(), SCHEDULES_DUE_MAX).await?;
            if let Some(name) = page.unreadable.first() {
                let about = format!("the schedule {name:?} of the source");
                return Err(Error::new(Code::StoreCorrupt).about(about));
            }
            let Some(last) = page.schedules.last() else { return Ok(()) };
            after = Some(last.name.clone());
            for schedule in page.schedules {
                pass.copied.schedules += 1;
                pass.copied.bytes += schedule.input.as_str().len() as u64;
                let import = ImportSchedule { schedule, dry_run: self.dry_run };
                let imported = take_in_schedule(self.to.as_ref(), import, pass.number).await?;
                pass.schedules_new += u64::from(imported == ScheduleImported::New);
            }
        }
    }
}

impl CopyTo {
    /// Goes through the queues of the source that are set up.
    async fn copy_queues(&mut self, pass: &mut Pass) -> Result<(), Error> {
        let Some(from) = self.from.queues() else { return Ok(()) };
        let mut after = None;
        loop {
            let page = from.list_queues(after.take(), COPY_BATCH_MAX).await?;
            after = page.queues.last().map(|counts| counts.queue.name.clone());
            let queues = page.queues.into_iter().map(|counts| counts.queue);
            for queue in queues.filter(crate::Queue::is_limited) {
                let Some(whole) = from.export_queue(queue.name).await? else { continue };
                pass.copied.queues += 1;
                let import = ImportQueue { whole, dry_run: self.dry_run };
                let imported = take_in_queue(self.to.as_ref(), import, pass.number).await?;
                pass.queues_new += u64::from(imported == QueueImported::New);
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Goes through the audit of the source. A row that is there stays as it is.
    async fn copy_audits(&mut self, pass: &mut Pass) -> Result<(), Error> {
        let Some(from) = self.from.audit() else { return Ok(()) };
        let Some(to) = self.to.audit() else {
            let left = from.audits(None, 1).await?;
            let nothing = left.rows.is_empty();
            return if nothing { Ok(()) } else { Err(Error::new(Code::CopyUnsupported)) };
        };
        let mut before = None;
        loop {
            let page = from.audits(before, COPY_BATCH_MAX).await?;
            pass.copied.audits += page.rows.len() as u64;
            before = page.rows.last().map(|row| row.id);
            if !self.dry_run {
                pass.audits_new += to.import_audits(page.rows).await?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Goes through the step keys of the source, as `pass` does through its runs. Those that came
    /// second with a key are counted, and their details are left behind.
    async fn copy_keys(&mut self, pass: &mut Pass) -> Result<(), Error> {
        let (Some(from), Some(to)) = (self.from.keys(), self.to.keys()) else { return Ok(()) };
        let mut after = None;
        loop {
            let page = from.step_keys(after, COPY_BATCH_MAX).await?;
            if let Some(key) = page.unreadable.first() {
                let about = format!("the step key {key:?} of the source");
                return Err(Error::new(Code::StoreCorrupt).about(about));
            }
            pass.copied.step_keys += page.keys.len() as u64;
            after = page.keys.last().map(|key| key.key.clone());
            for key in page.keys.into_iter().filter(|_| !self.dry_run) {
                let about = format!("the step key {:?} differs in the destination", key.key);
                let new = to.import_key(key).await.map_err(|error| match error {
                    store::Error::Conflict(_) => Error::new(Code::CopyConflict).about(about),
                    error => Error::from(error),
                })?;
                pass.new_keys |= new;
            }
            if !page.more {
                return Ok(());
            }
        }
    }
}

impl Pass {
    /// Counts a run, and gives it as it is to stand in the destination.
    fn count(&mut self, whole: WholeRun, now: Timestamp) -> WholeRun {
        *self.states.entry(whole.run.state).or_default() += 1;
        let done = &mut self.copied;
        done.taken_back += u64::from(whole.run.state == RunState::Running);
        let whole = whole.taken_back();
        *done.runs.entry(whole.run.state).or_default() += 1;
        done.records += whole.records.len() as u64;
        done.keys += u64::from(whole.hold.as_ref().is_some_and(|hold| hold.is_live(now)));
        done.duplicates += whole.suppressed.len() as u64;
        done.bytes += whole.bytes() as u64;
        whole
    }

    fn progress(&self, total: u64) -> CopyProgress {
        let runs = self.imported.new + self.imported.there;
        CopyProgress { pass: self.number, runs, total, bytes: self.copied.bytes }
    }
}

/// The store's workers and counts, if no live worker serves it. An expired lease is a dead worker's,
/// or that of one which cannot be told from it.
async fn unserved(store: &dyn Store, which: &str) -> Result<Stats, Error> {
    let stats = store.stats().await?;
    let now = store.clock().now();
    match stats.workers.iter().find(|worker| worker.lease_until >= now) {
        None => Ok(stats),
        Some(worker) => {
            let (until, held) = (worker.lease_until, worker.running);
            let about = format!(
                "{} serves the {which}, holds {held} runs and has a lease until {until}",
                named(worker)
            );
            Err(Error::new(Code::StoreServed).about(about))
        }
    }
}

/// Checks that no worker has come to the source, and that it counts the runs that were compared.
fn check_unchanged(
    before: &Stats,
    after: &Stats,
    compared: &BTreeMap<RunState, u64>,
) -> Result<(), Error> {
    let changed = |about: String| Err(Error::new(Code::StoreChanged).about(about));
    let known = |worker: &&WorkerInfo| before.workers.iter().any(|old| old.id == worker.id);
    if let Some(worker) = after.workers.iter().find(|worker| !known(worker)) {
        return changed(format!("{} joined the source meanwhile", named(worker)));
    }
    for state in RunState::ALL {
        let count = |counts: &BTreeMap<_, u64>| counts.get(&state).copied().unwrap_or(0);
        let (there, seen) = (count(&after.runs), count(compared));
        if there != seen {
            return changed(format!("the source has {there} {state} runs, {seen} were copied"));
        }
    }
    Ok(())
}

fn named(worker: &WorkerInfo) -> String {
    format!("worker {} at {:?}", worker.id, worker.place)
}

fn portable(store: &dyn Store) -> Result<&dyn Portable, Error> {
    let unsupported = || Error::new(Code::CopyUnsupported).about(format!("{store:?}"));
    store.portable().ok_or_else(unsupported)
}

/// Imports, and says in the terms of a copy why not.
async fn take_in(to: &dyn Portable, import: Import, pass: u32) -> Result<Imported, Error> {
    let keys: BTreeMap<RunId, String> = (import.runs.iter())
        .filter_map(|whole| {
            let (workflow, key) = whole.held_key()?;
            Some((whole.run.id, format!("{key:?} of workflow {workflow:?}")))
        })
        .collect();
    let refused = |error| match error {
        store::Error::Conflict(Conflict::KeyHeld { run, holder }) => {
            let key = keys.get(&run).map_or("", String::as_str);
            let about = format!("its key {key} belongs to run {holder} in the destination");
            Error::new(Code::CopyConflict).of_run(run).about(about)
        }
        store::Error::Conflict(Conflict::RunDiffers { run }) if pass == 1 => {
            let about = "it is in the destination, and is not the same there";
            Error::new(Code::CopyConflict).of_run(run).about(about)
        }
        store::Error::Conflict(Conflict::RunDiffers { run }) => {
            let about = "it was copied, and is no longer the same in both stores";
            Error::new(Code::StoreChanged).of_run(run).about(about)
        }
        error => Error::from(error),
    };
    to.import(import).await.map_err(refused)
}

/// Imports a schedule, and says in the terms of a copy why not.
async fn take_in_schedule(
    to: &dyn Store,
    import: ImportSchedule,
    pass: u32,
) -> Result<ScheduleImported, Error> {
    let name = import.schedule.name.clone();
    let unsupported = || Error::new(Code::SchedulesUnsupported).about(format!("{to:?}"));
    match to.schedules().ok_or_else(unsupported)?.import_schedule(import).await? {
        ScheduleImported::Differs if pass == 1 => {
            let about =
                format!("schedule {name:?} is in the destination, and is not the same there");
            Err(Error::new(Code::CopyConflict).about(about))
        }
        ScheduleImported::Differs => {
            let about = format!("schedule {name:?} was copied, and is no longer the same in both");
            Err(Error::new(Code::StoreChanged).about(about))
        }
        imported => Ok(imported),
    }
}

/// Imports a queue, and says in the terms of a copy why not.
async fn take_in_queue(
    to: &dyn Store,
    import: ImportQueue,
    pass: u32,
) -> Result<QueueImported, Error> {
    let name = import.whole.queue.name.clone();
    let unsupported = || Error::new(Code::QueuesUnsupported).about(format!("{to:?}"));
    match to.queues().ok_or_else(unsupported)?.import_queue(import).await? {
        QueueImported::Differs if pass == 1 => {
            let about = format!("queue {name:?} is set up otherwise in the destination");
            Err(Error::new(Code::CopyConflict).about(about))
        }
        QueueImported::Differs => {
            let about = format!("queue {name:?} was copied, and is no longer the same in both");
            Err(Error::new(Code::StoreChanged).about(about))
        }
        imported => Ok(imported),
    }
}

impl IntoFuture for CopyTo {
    type Output = Result<Copied, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.copy())
    }
}

impl fmt::Debug for CopyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyTo").field("from", &self.from).field("to", &self.to).finish()
    }
}
