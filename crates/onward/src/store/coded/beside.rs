//! What a coded store has beside runs: schedules, and whole runs.
//!
//! Owns: that their payloads go through the codecs. Never gives a run the input of its schedule as that
//! is stored: each payload is bound to its own place.

use super::pass::{Opening, Sealing};
use super::{CodedStore, refused, visit};
use crate::codec::is_envelope;
use crate::store::{
    Answer, DueSchedules, Error, Fire, Fired, Import, ImportSchedule, Imported, NewKey,
    NewOccurrence, OccurrenceInput, Portable, PutSchedule, Resume, ScheduleImported, SchedulePage,
    Schedules, WholeRun, schedules,
};
use crate::{RunId, Schedule};

impl CodedStore {
    fn inner_schedules(&self) -> Result<&dyn Schedules, Error> {
        self.inner.schedules().ok_or(Error::NotFound)
    }

    fn inner_portable(&self) -> Result<&dyn Portable, Error> {
        self.inner.portable().ok_or(Error::NotFound)
    }

    /// A schedule for people.
    fn open_schedule(&self, mut schedule: Schedule) -> Schedule {
        visit::schedule(&mut schedule, &mut Opening::new(&self.coding));
        schedule
    }

    fn open_schedules(&self, all: Vec<Schedule>) -> Vec<Schedule> {
        all.into_iter().map(|schedule| self.open_schedule(schedule)).collect()
    }

    /// A schedule to act upon.
    fn read_schedule(&self, mut schedule: Schedule) -> Result<Schedule, Error> {
        let mut opening = Opening::new(&self.coding);
        visit::schedule(&mut schedule, &mut opening);
        opening.done()?;
        Ok(schedule)
    }

    async fn put(&self, mut put: PutSchedule) -> Result<Schedule, Error> {
        let schedules = self.inner_schedules()?;
        let stored = schedules.get_schedule(put.name.clone()).await?;
        let mut sealed = put.clone();
        let mut sealing = Sealing::new(&self.coding);
        visit::put_schedule(&mut sealed, &mut sealing);
        sealing.done()?;
        // The store compares inputs as they are stored. One that means the same stays as it is,
        // though it be written otherwise or encrypted with another key.
        let same = stored.filter(|old| {
            let encoded = |text: &str| is_envelope(text);
            let read = self.read_schedule(old.clone());
            let same = read.is_ok_and(|old| old.input.fingerprint() == put.input.fingerprint());
            same && encoded(old.input.as_str()) == encoded(sealed.input.as_str())
        });
        put.input = same.map_or(sealed.input, |old| old.input);
        Ok(self.open_schedule(schedules.put_schedule(put).await?))
    }

    async fn fire(&self, mut fire: Fire) -> Result<Fired, Error> {
        let schedules = self.inner_schedules()?;
        let stored = schedules.get_schedule(fire.name.clone()).await?;
        // Another generation is refused below. The input of this one is this one.
        if let Some(stored) = stored.filter(|stored| stored.generation == fire.generation) {
            let schedule = self.read_schedule(stored)?;
            for occurrence in &mut fire.occurrences {
                occurrence.input = self.input_of(&schedule, occurrence)?;
            }
        }
        schedules.fire_schedule(fire).await
    }

    /// What the run of one time is started with, as it is stored.
    fn input_of(
        &self,
        schedule: &Schedule,
        occurrence: &NewOccurrence,
    ) -> Result<Option<OccurrenceInput>, Error> {
        let run = self.seal_run(schedules::run_of(schedule, occurrence, ""))?;
        let input = run.input;
        Ok(run.key.map(|NewKey { fingerprint, .. }| OccurrenceInput { input, fingerprint }))
    }
}

impl Schedules for CodedStore {
    fn put_schedule(&self, put: PutSchedule) -> Answer<'_, Schedule> {
        Box::pin(self.put(put))
    }

    fn get_schedule(&self, name: String) -> Answer<'_, Option<Schedule>> {
        Box::pin(async move {
            let found = self.inner_schedules()?.get_schedule(name).await?;
            Ok(found.map(|schedule| self.open_schedule(schedule)))
        })
    }

    fn list_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, SchedulePage> {
        Box::pin(async move {
            let page = self.inner_schedules()?.list_schedules(after, limit).await?;
            Ok(SchedulePage { schedules: self.open_schedules(page.schedules), ..page })
        })
    }

    fn due_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, DueSchedules> {
        Box::pin(async move {
            let due = self.inner_schedules()?.due_schedules(after, limit).await?;
            Ok(DueSchedules { schedules: self.open_schedules(due.schedules), ..due })
        })
    }

    fn fire_schedule(&self, fire: Fire) -> Answer<'_, Fired> {
        Box::pin(self.fire(fire))
    }

    fn pause_schedule(&self, name: String) -> Answer<'_, Schedule> {
        Box::pin(async move {
            Ok(self.open_schedule(self.inner_schedules()?.pause_schedule(name).await?))
        })
    }

    fn resume_schedule(&self, resume: Resume) -> Answer<'_, Schedule> {
        Box::pin(async move {
            Ok(self.open_schedule(self.inner_schedules()?.resume_schedule(resume).await?))
        })
    }

    fn remove_schedule(&self, name: String) -> Answer<'_, bool> {
        match self.inner_schedules() {
            Ok(schedules) => schedules.remove_schedule(name),
            Err(error) => refused(error),
        }
    }

    fn import_schedule(&self, mut import: ImportSchedule) -> Answer<'_, ScheduleImported> {
        Box::pin(async move {
            let mut sealing = Sealing::new(&self.coding);
            visit::schedule(&mut import.schedule, &mut sealing);
            sealing.done()?;
            self.inner_schedules()?.import_schedule(import).await
        })
    }
}

impl Portable for CodedStore {
    fn export(&self, after: Option<RunId>, limit: usize) -> Answer<'_, Vec<WholeRun>> {
        Box::pin(async move {
            let mut runs = self.inner_portable()?.export(after, limit).await?;
            for whole in &mut runs {
                let mut opening = Opening::of_run(&self.coding, &whole.run);
                visit::whole_run(whole, &mut opening);
                opening.done()?;
            }
            Ok(runs)
        })
    }

    fn import(&self, mut import: Import) -> Answer<'_, Imported> {
        Box::pin(async move {
            let mut sealing = Sealing::new(&self.coding);
            import.runs.iter_mut().for_each(|whole| visit::whole_run(whole, &mut sealing));
            sealing.done()?;
            self.inner_portable()?.import(import).await
        })
    }
}
