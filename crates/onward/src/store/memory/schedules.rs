//! Schedules in memory.
//!
//! Owns: what firing does to runs and to the schedule, in one go. Never decides what a policy says;
//! `store::schedules` does.

use std::ops::Bound;

use super::start;
use super::*;
use crate::Schedule;
use crate::limits::SCHEDULES_DUE_MAX;
use crate::store::schedules::{self, Overlapping};

impl Schedules for MemoryStore {
    fn put_schedule(&self, put: PutSchedule) -> Answer<'_, Schedule> {
        self.transact(|state, now| {
            let old = state.schedules.get(&put.name);
            if let Some(new) = schedules::put(old, &put, now) {
                state.schedules.insert(put.name.clone(), new);
            }
            state.schedule(&put.name).cloned()
        })
    }

    fn get_schedule(&self, name: String) -> Answer<'_, Option<Schedule>> {
        self.read(|state| Ok(state.schedules.get(&name).cloned()))
    }

    fn list_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, SchedulePage> {
        self.read(|state| {
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let mut page: Vec<_> = state.schedules_after(after).take(limit + 1).cloned().collect();
            let more = page.len() > limit;
            page.truncate(limit);
            Ok(SchedulePage { schedules: page, unreadable: Vec::new(), more })
        })
    }

    fn due_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, DueSchedules> {
        let now = self.clock.now();
        self.read(|state| {
            let live = |schedule: &&Schedule| schedule.paused_at.is_none();
            let due = |schedule: &&Schedule| schedule.next_at.is_some_and(|next_at| next_at <= now);
            let limit = limit.clamp(1, SCHEDULES_DUE_MAX);
            let found = state.schedules_after(after).filter(live).filter(due).take(limit);
            let schedules = found.cloned().collect();
            let times = state.schedules.values().filter(live).filter_map(|it| it.next_at);
            let next_at = times.filter(|next_at| *next_at > now).min();
            Ok(DueSchedules { schedules, next_at, now })
        })
    }

    fn fire_schedule(&self, fire: Fire) -> Answer<'_, Fired> {
        self.transact(|state, now| state.fire(&fire, now))
    }

    fn pause_schedule(&self, name: String) -> Answer<'_, Schedule> {
        self.transact(|state, now| {
            let schedule = state.schedules.get_mut(&name).ok_or(Error::NotFound)?;
            schedule.paused_at.get_or_insert(now);
            Ok(schedule.clone())
        })
    }

    fn resume_schedule(&self, resume: Resume) -> Answer<'_, Schedule> {
        self.transact(|state, _| {
            if let Some(new) = schedules::resume(state.schedule(&resume.name)?, &resume) {
                state.schedules.insert(resume.name.clone(), new);
            }
            state.schedule(&resume.name).cloned()
        })
    }

    fn remove_schedule(&self, name: String) -> Answer<'_, bool> {
        self.transact(|state, _| Ok(state.schedules.remove(&name).is_some()))
    }

    fn import_schedule(&self, import: ImportSchedule) -> Answer<'_, ScheduleImported> {
        self.transact(|state, _| {
            let ImportSchedule { schedule, dry_run } = import;
            if let Some(there) = state.schedules.get(&schedule.name) {
                let same = *there == schedule;
                return Ok(if same { ScheduleImported::There } else { ScheduleImported::Differs });
            }
            if !dry_run {
                state.schedules.insert(schedule.name.clone(), schedule);
            }
            Ok(ScheduleImported::New)
        })
    }
}

impl State {
    fn schedule(&self, name: &str) -> Result<&Schedule, Error> {
        self.schedules.get(name).ok_or(Error::NotFound)
    }

    fn schedules_after(&self, after: Option<String>) -> impl Iterator<Item = &Schedule> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.schedules.range((first, Bound::Unbounded)).map(|(_, schedule)| schedule)
    }

    fn fire(&mut self, fire: &Fire, now: Timestamp) -> Result<Fired, Error> {
        let mut schedule = self.schedule(&fire.name)?.clone();
        if !schedules::is_seen(&schedule, fire) {
            return Ok(Fired::Late);
        }
        let mut latest = (schedule.latest.clone())
            .and_then(|latest| self.live_key(latest.workflow, latest.key, now))
            .map(|held| held.run);
        let mut all = Vec::with_capacity(fire.occurrences.len());
        for occurrence in &fire.occurrences {
            let new = schedules::run_of(&schedule, occurrence, &fire.caller);
            let occurred = self.occur(&schedule, (occurrence.at, new), latest, now)?;
            latest = occurred.run().or(latest);
            all.push(occurred);
        }
        schedules::fired(&mut schedule, fire, &all);
        self.schedules.insert(fire.name.clone(), schedule);
        Ok(Fired::Done(all))
    }

    /// Starts the run of one time, unless it is there or the policy is against it.
    fn occur(
        &mut self,
        schedule: &Schedule,
        (at, new): (Timestamp, NewRun),
        latest: Option<RunId>,
        now: Timestamp,
    ) -> Result<Occurred, Error> {
        let run = new.id;
        if self.runs.contains_key(&run) {
            return Ok(Occurred::Started { run });
        }
        if let Some(key) = &new.key
            && let Some(held) = self.live_key(new.workflow.clone(), key.key.clone(), now)
        {
            return Ok(match held.fingerprint == key.fingerprint {
                true => Occurred::Existing { run: held.run },
                false => Occurred::Refused { holder: held.run },
            });
        }
        let latest = latest.and_then(|latest| self.last_in_line(latest));
        let decided = schedules::overlapping(schedule, at, latest.as_ref(), now);
        let Some(live) = latest.map(|latest| latest.id) else {
            start::insert(self, new, None, now);
            return Ok(Occurred::Started { run });
        };
        Ok(match decided {
            Overlapping::Start => {
                start::insert(self, new, None, now);
                Occurred::Started { run }
            }
            Overlapping::Skip => Occurred::Skipped { live },
            Overlapping::Behind => {
                let place = self.join_line(live, run);
                start::insert(self, new, place, now);
                Occurred::Buffered { run, behind: live }
            }
            Overlapping::Replace => {
                start::replace(self, new, live, now)?;
                Occurred::Replaced { run, previous: live }
            }
        })
    }
}
