//! What a lossy store has beside runs: keys, schedules and whole runs.
//!
//! Owns: handing these on to the store inside, each write to its fate. Never answers one itself, but
//! where the store inside has no such thing.

use super::LossyStore;
use crate::store::{
    Answer, Audit, AuditPage, Delete, DueSchedules, Duplicates, Error, Fire, Fired, Import,
    ImportSchedule, Imported, KeyAnswer, KeyLease, Keys, NewAudit, Portable, PutSchedule, Resume,
    ScheduleImported, SchedulePage, Schedules, SettleKey, StepKey, StepKeyPage, TakeKey, Waiter,
    WholeRun,
};
use crate::{AuditId, RunId, Schedule};

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
    fn on_audit<'a, T: Send + 'a>(
        &'a self,
        verb: impl FnOnce(&'a dyn Audit) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.inner.audit() {
            Some(inner) => verb(inner),
            None => Box::pin(std::future::ready(Err(Error::NotFound))),
        }
    }
}

impl Delete for LossyStore {
    fn delete_run(&self, run: RunId) -> Answer<'_, bool> {
        match self.inner.deletes() {
            Some(inner) => self.write(|| inner.delete_run(run)),
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

    fn audits(&self, before: Option<AuditId>, limit: usize) -> Answer<'_, AuditPage> {
        self.on_audit(|inner| inner.audits(before, limit))
    }
}
