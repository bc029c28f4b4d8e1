//! What a lossy store has beside the verbs of every run: keys, schedules, queues, whole runs, steering
//! and notes.
//!
//! Owns: handing these on to the store inside, each write to its fate. Never answers one itself, but
//! where the store inside has no such thing.

use super::LossyStore;
use crate::store::{
    Answer, Audit, AuditPage, AuditRow, Delete, DueSchedules, Duplicates, Error, Fire, Fired, Fork,
    Import, ImportQueue, ImportSchedule, Imported, KeyAnswer, KeyLease, Keys, Lease, LogPage,
    NewAudit, Note, Notebook, Pause, Portable, PutQueue, PutSchedule, QueueImported, QueuePage,
    Queues, Resume, ScheduleImported, SchedulePage, Schedules, Seen, SettleKey, Steer, StepKey,
    StepKeyPage, TakeKey, Waiter, WholeQueue, WholeRun,
};
use crate::{AuditId, Queue, QueueUse, Run, RunId, Schedule};

impl LossyStore {
    fn on_keys<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Keys) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.inner.keys() {
            Some(keys) => verb(keys),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }
}

impl Keys for LossyStore {
    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer> {
        self.on_keys(|keys| self.write(|| keys.take_key(take)))
    }

    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()> {
        self.on_keys(|keys| self.write(|| keys.renew_key(lease, lease_ms)))
    }

    fn settle_key(&self, lease: KeyLease, settle: SettleKey) -> Answer<'_, ()> {
        self.on_keys(|keys| self.write(|| keys.settle_key(lease, settle)))
    }

    fn release_key(&self, key: String) -> Answer<'_, bool> {
        self.on_keys(|keys| self.write(|| keys.release_key(key)))
    }

    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>> {
        self.on_keys(|keys| keys.step_key(key))
    }

    fn step_keys(&self, after: Option<String>, limit: usize) -> Answer<'_, StepKeyPage> {
        self.on_keys(|keys| keys.step_keys(after, limit))
    }

    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates> {
        self.on_keys(|keys| keys.key_duplicates(key))
    }

    fn import_key(&self, key: StepKey) -> Answer<'_, bool> {
        self.on_keys(|keys| self.write(|| keys.import_key(key)))
    }

    fn wait_key(&self, key: &str) -> Option<Waiter> {
        self.inner.keys()?.wait_key(key)
    }
}

impl Portable for LossyStore {
    fn export(&self, after: Option<RunId>, limit: usize) -> Answer<'_, Vec<WholeRun>> {
        match self.inner.portable() {
            Some(inner) => inner.export(after, limit),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        match self.inner.portable() {
            Some(inner) => self.write(|| inner.import(import)),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }
}

impl LossyStore {
    fn on_schedules<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Schedules) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.inner.schedules() {
            Some(inner) => verb(inner),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }

    fn write_schedules<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Schedules) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        self.write(|| self.on_schedules(verb))
    }
}

impl Schedules for LossyStore {
    fn put_schedule(&self, put: PutSchedule) -> Answer<'_, Schedule> {
        self.write_schedules(|inner| inner.put_schedule(put))
    }

    fn get_schedule(&self, name: String) -> Answer<'_, Option<Schedule>> {
        self.on_schedules(|inner| inner.get_schedule(name))
    }

    fn list_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, SchedulePage> {
        self.on_schedules(|inner| inner.list_schedules(after, limit))
    }

    fn due_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, DueSchedules> {
        self.on_schedules(|inner| inner.due_schedules(after, limit))
    }

    fn fire_schedule(&self, fire: Fire) -> Answer<'_, Fired> {
        self.write_schedules(|inner| inner.fire_schedule(fire))
    }

    fn pause_schedule(&self, name: String) -> Answer<'_, Schedule> {
        self.write_schedules(|inner| inner.pause_schedule(name))
    }

    fn resume_schedule(&self, resume: Resume) -> Answer<'_, Schedule> {
        self.write_schedules(|inner| inner.resume_schedule(resume))
    }

    fn remove_schedule(&self, name: String) -> Answer<'_, bool> {
        self.write_schedules(|inner| inner.remove_schedule(name))
    }

    fn import_schedule(&self, import: ImportSchedule) -> Answer<'_, ScheduleImported> {
        self.write_schedules(|inner| inner.import_schedule(import))
    }
}

impl LossyStore {
    fn steering<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Steer) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.inner.steer() {
            Some(inner) => self.write(|| verb(inner)),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }
}

impl Steer for LossyStore {
    fn pause(&self, pause: Pause) -> Answer<'_, Run> {
        self.steering(|inner| inner.pause(pause))
    }

    fn resume(&self, run: RunId) -> Answer<'_, Run> {
        self.steering(|inner| inner.resume(run))
    }

    fn retry_seen(&self, seen: Seen) -> Answer<'_, bool> {
        self.steering(|inner| inner.retry_seen(seen))
    }

    fn fork(&self, fork: Fork) -> Answer<'_, Run> {
        self.steering(|inner| inner.fork(fork))
    }

    fn cascade(&self) -> Answer<'_, bool> {
        self.steering(|inner| inner.cascade())
    }
}

impl Notebook for LossyStore {
    fn note(&self, lease: Lease, note: Note) -> Answer<'_, ()> {
        match self.inner.notebook() {
            Some(inner) => self.write(|| inner.note(lease, note)),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }

    fn log(&self, run: RunId, after: u64, limit: usize) -> Answer<'_, LogPage> {
        match self.inner.notebook() {
            Some(inner) => inner.log(run, after, limit),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }
}

impl LossyStore {
    fn on_queues<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Queues) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.inner.queues() {
            Some(inner) => verb(inner),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }

    fn on_audit<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Audit) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.inner.audit() {
            Some(inner) => verb(inner),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }

    fn write_queues<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Queues) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        self.write(|| self.on_queues(verb))
    }
}

impl Queues for LossyStore {
    fn put_queue(&self, put: PutQueue) -> Answer<'_, Queue> {
        self.write_queues(|inner| inner.put_queue(put))
    }

    fn pause_queue(&self, name: String) -> Answer<'_, Queue> {
        self.write_queues(|inner| inner.pause_queue(name))
    }

    fn resume_queue(&self, name: String) -> Answer<'_, Queue> {
        self.write_queues(|inner| inner.resume_queue(name))
    }

    fn clear_queue(&self, name: String) -> Answer<'_, bool> {
        self.write_queues(|inner| inner.clear_queue(name))
    }

    fn get_queue(&self, name: String) -> Answer<'_, Option<Queue>> {
        self.on_queues(|inner| inner.get_queue(name))
    }

    fn list_queues(&self, after: Option<String>, limit: usize) -> Answer<'_, QueuePage> {
        self.on_queues(|inner| inner.list_queues(after, limit))
    }

    fn queue_use(&self, name: String, lane: Option<String>) -> Answer<'_, Option<QueueUse>> {
        self.on_queues(|inner| inner.queue_use(name, lane))
    }

    fn export_queue(&self, name: String) -> Answer<'_, Option<WholeQueue>> {
        self.on_queues(|inner| inner.export_queue(name))
    }

    fn import_queue(&self, import: ImportQueue) -> Answer<'_, QueueImported> {
        self.write_queues(|inner| inner.import_queue(import))
    }
}

impl Delete for LossyStore {
    fn delete_run(&self, run: RunId) -> Answer<'_, bool> {
        match self.inner.deletes() {
            Some(inner) => self.write(|| inner.delete_run(run)),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }

    fn release_run_key(&self, run: RunId) -> Answer<'_, bool> {
        match self.inner.deletes() {
            Some(inner) => self.write(|| inner.release_run_key(run)),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }
}

impl Audit for LossyStore {
    fn add_audit(&self, row: NewAudit) -> Answer<'_, ()> {
        self.write(|| self.on_audit(|inner| inner.add_audit(row)))
    }

    fn end_audit(&self, id: AuditId, outcome: String, detail: Option<String>) -> Answer<'_, ()> {
        self.write(|| self.on_audit(|inner| inner.end_audit(id, outcome, detail)))
    }

    fn import_audits(&self, rows: Vec<AuditRow>) -> Answer<'_, u64> {
        self.write(|| self.on_audit(|inner| inner.import_audits(rows)))
    }

    fn audits(&self, before: Option<AuditId>, limit: usize) -> Answer<'_, AuditPage> {
        self.on_audit(|inner| inner.audits(before, limit))
    }
}
