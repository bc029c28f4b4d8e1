//! Firing: what every worker does for all, beside sweeping.
//!
//! Owns: the rhythm, and making runs of a plan. Never decides what overlaps; the store does, in the
//! transaction that starts the runs. Whoever comes second finds that the schedule has moved on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Times;
use super::plan::plan;
use crate::limits::{PAGE_ROWS_MAX, SCHEDULES_DUE_MAX};
use crate::model::schedule::occurrence_key;
use crate::store::schedules::over_by;
use crate::store::{self, Advance, Fire, Fired, NewOccurrence, Occurred, Schedules, Store, Topic};
use crate::upkeep::cascade;
use crate::worker::tenure::Tenure;
use crate::{Error, RunId, Schedule, Timestamp};

/// When a schedule that could not be fired is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// How many of the store's idle looks go by between two looks at the schedules without a hint and with
/// none to come sooner: the safety net, and a hint is hardly ever lost.
const IDLE_LOOKS: u32 = 3;

/// How often a worker looks whether schedules are ahead of their times: another process with a clock that
/// was ahead, or an older program, may have moved one.
const MOVE_BACK_EVERY: Duration = Duration::from_secs(5 * 60);

/// Fires what is due, for as long as the tenure lasts.
pub(crate) async fn keep_firing(store: Arc<dyn Store>, tenure: Arc<Tenure>) {
    fire_while(store, || !tenure.is_over()).await;
}

async fn fire_while(store: Arc<dyn Store>, goes_on: impl Fn() -> bool) {
    let Some(schedules) = store.schedules() else { return };
    let caller = crate::worker::place();
    let mut looked: Option<(Timestamp, Instant)> = None;
    while goes_on() {
        let now = store.clock().now();
        let is_due = looked.is_none_or(|(at, when)| now < at || when.elapsed() > MOVE_BACK_EVERY);
        if is_due {
            if let Err(error) = move_back(schedules, &caller).await {
                tracing::warn!(%error, "cannot look whether schedules are ahead of their times");
            }
            looked = Some((now, Instant::now()));
        }
        looked = looked.map(|(_, when)| (now, when));
        let hint = store.wait(Topic::Schedules);
        let passed = pass(store.as_ref(), schedules, &caller).await;
        let (next_at, failed) = passed.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot look at the schedules; again soon");
            (None, true)
        });
        let look_in = if failed { AGAIN } else { store.idle_look_every() * IDLE_LOOKS };
        let clock = store.clock();
        // Only a schedule's own time is a time of the store's clock: a test moves that clock from one
        // such time to the next.
        let due = async {
            match next_at {
                Some(next_at) => clock.sleep_until(next_at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = hint => {}
            () = due => {}
            () = tokio::time::sleep(look_in) => {}
        }
    }
}

/// Moves the schedules back whose next time is later than the next from now, or that have none: they were fired
/// by a clock that was ahead, and would be silent until then. No time whose run is there is started twice for
/// that: each has its own key.
async fn move_back(schedules: &dyn Schedules, caller: &str) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = schedules.list_schedules(after.take(), PAGE_ROWS_MAX).await?;
        // By the store's own time: this process may have measured it long ago. And by one after the page, so
        // that no firing that it shows is ahead of it.
        let now = schedules.due_schedules(None, 1).await?.now;
        after = page.schedules.last().map(|last| last.name.clone());
        for schedule in page.schedules {
            let Some(advance) = behind(&schedule, now) else { continue };
            let name = schedule.name;
            tracing::warn!(schedule = %name, ?advance, "moved back to its next time");
            let fire = Fire {
                name: name.clone(),
                generation: schedule.generation,
                advance: Some(advance),
                occurrences: Vec::new(),
                caller: caller.to_owned(),
            };
            match schedules.fire_schedule(fire).await {
                Ok(_) | Err(store::Error::NotFound) => {}
                Err(error @ store::Error::Unavailable(..)) => return Err(error.into()),
                Err(error) => tracing::warn!(schedule = %name, %error, "cannot be moved back"),
            }
        }
        if !page.more || after.is_none() {
            return Ok(());
        }
    }
}

/// How a schedule is moved back that is ahead of its times; nothing if it is not. Never to a time that is over: a
/// clock that is behind knows less than the schedule.
fn behind(schedule: &Schedule, now: Timestamp) -> Option<Advance> {
    if schedule.paused_at.is_some() {
        return None;
    }
    let next_at = Times::of(&schedule.spec).ok()?.after(now.max(over_by(schedule, now)))?;
    let seen_at = schedule.next_at;
    let is_ahead = seen_at.is_none_or(|seen| next_at < seen);
    is_ahead.then_some(Advance { seen_at, next_at: Some(next_at) })
}

/// Fires every schedule that is due; says when the next one comes, and whether one failed.
async fn pass(
    store: &dyn Store,
    schedules: &dyn Schedules,
    caller: &str,
) -> Result<(Option<Timestamp>, bool), store::Error> {
    let (mut after, mut failed) = (None, false);
    loop {
        let is_whole = after.is_none();
        let due = schedules.due_schedules(after.take(), SCHEDULES_DUE_MAX).await?;
        match due.schedules.last() {
            Some(last) => after = Some(last.name.clone()),
            // Only a look at all of them says when the next one comes: one that this pass has fired
            // may be due again by now. One that cannot be fired would be met for ever.
            None if is_whole || failed => return Ok((due.next_at, failed)),
            None => {}
        }
        for schedule in due.schedules {
            let name = schedule.name.clone();
            if let Err(error) = fire_due(store, schedules, schedule, (due.now, caller)).await {
                failed = true;
                tracing::warn!(schedule = %name, %error, "cannot fire; again soon");
            }
        }
    }
}

/// Fires what is due of one schedule, part by part. `now` is the time by which it is: another one, as
/// this process's, may find that it is not, and be asked about it for ever.
pub(crate) async fn fire_due(
    store: &dyn Store,
    schedules: &dyn Schedules,
    mut schedule: Schedule,
    (now, caller): (Timestamp, &str),
) -> Result<(), Error> {
    let times = Times::of(&schedule.spec)?;
    while let Some(seen_at) = schedule.next_at
        && schedule.paused_at.is_none()
        && seen_at <= now
    {
        let plan = plan(&schedule, &times, seen_at, now);
        let advance = Advance { seen_at: Some(seen_at), next_at: plan.next_at };
        let fire = Fire {
            name: schedule.name.clone(),
            generation: schedule.generation,
            advance: Some(advance),
            occurrences: plan.fire.iter().map(|at| occurrence(&schedule, *at)).collect(),
            caller: caller.to_owned(),
        };
        match schedules.fire_schedule(fire).await {
            Ok(Fired::Done(all)) => {
                all.iter().for_each(|occurred| note(&schedule, occurred));
                if all.iter().any(Occurred::replaces) {
                    cascade(store).await;
                }
            }
            // Somebody else was faster, or removed it.
            Ok(Fired::Late) | Err(store::Error::NotFound) => break,
            Err(error) => return Err(error.into()),
        }
        schedule.next_at = plan.next_at;
    }
    Ok(())
}

/// The run for one time of a schedule.
pub(crate) fn occurrence(schedule: &Schedule, at: Timestamp) -> NewOccurrence {
    let key = occurrence_key(&schedule.name, at).to_string();
    NewOccurrence { at, run: RunId::new(), key, input: None }
}

fn note(schedule: &Schedule, occurred: &Occurred) {
    let name = &schedule.name;
    match occurred {
        Occurred::Skipped { live } => {
            tracing::info!(schedule = %name, run = %live, "skipped: the run before has not ended");
        }
        Occurred::Refused { holder } => {
            let run = holder;
            tracing::warn!(schedule = %name, %run, "not started: a run with another input has its key");
        }
        other => tracing::debug!(schedule = %name, ?other, "fired"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::store::{BoxFuture, MemoryStore};
    use crate::{Clock, Onward, Workflow};

    const BEGIN: Timestamp = Timestamp::from_millis(1_767_225_600_000);
    const MINUTE: Duration = Duration::from_secs(60);
    const REPORT: Workflow<u64, ()> = Workflow::named("report");

    /// A clock that goes a minute forward when it has been read so many times.
    #[derive(Debug, Default)]
    struct Jumping {
        minutes: AtomicU32,
        reads_left: AtomicU32,
    }

    impl Clock for Jumping {
        fn now(&self) -> Timestamp {
            if self.reads_left.fetch_sub(1, Ordering::SeqCst) == 0 {
                self.minutes.fetch_add(1, Ordering::SeqCst);
            }
            BEGIN + MINUTE * self.minutes.load(Ordering::SeqCst)
        }

        fn sleep_until(&self, _: Timestamp) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }
    }

    /// Fails where a clock that was ahead for a moment silences a schedule until that time.
    #[tokio::test]
    async fn a_schedule_that_is_ahead_of_its_times_is_moved_back() {
        let clock = Arc::new(Jumping::default());
        clock.reads_left.store(u32::MAX, Ordering::SeqCst);
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>));
        let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
        let setup = onward.schedule("every-minute").every(MINUTE).anchor(BEGIN);
        setup.start(REPORT, &7).await.unwrap();
        let schedules = store.schedules().unwrap();
        let next = async || {
            let schedule = schedules.get_schedule("every-minute".to_owned()).await.unwrap();
            schedule.unwrap().next_at
        };
        let first = next().await;
        move_back(schedules, "here").await.unwrap();
        assert_eq!(next().await, first, "one that is not ahead stays");
        clock.minutes.store(1_000, Ordering::SeqCst);
        pass(store.as_ref(), schedules, "here").await.unwrap();
        assert_eq!(next().await, Some(BEGIN + MINUTE * 1_001));
        clock.minutes.store(1, Ordering::SeqCst);
        move_back(schedules, "here").await.unwrap();
        assert_eq!(next().await, Some(BEGIN + MINUTE * 2));
    }

    /// Fails where a clock that is far behind takes a schedule back to times that were fired, or that came before
    /// it was made: whoever catches up once the clock is right would start them.
    #[tokio::test]
    async fn a_schedule_is_not_moved_back_to_what_was_fired_or_came_before_it() {
        let clock = crate::TestClock::at(BEGIN);
        let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
        let schedule = every_minute(&store).await;
        let schedules = store.schedules().unwrap();
        let far_behind = Duration::from_secs(365 * 24 * 3_600);
        move_away(&store, &schedule, Some(BEGIN + MINUTE * 1_000)).await;
        clock.set_back(far_behind);
        move_back(schedules, "here").await.unwrap();
        assert_eq!(next_of(&store).await, Some(BEGIN + MINUTE), "the first after it was made");
        clock.advance(far_behind + MINUTE * 10);
        pass(store.as_ref(), schedules, "here").await.unwrap();
        assert_eq!(next_of(&store).await, Some(BEGIN + MINUTE * 11));
        clock.set_back(far_behind);
        move_back(schedules, "here").await.unwrap();
        assert_eq!(next_of(&store).await, Some(BEGIN + MINUTE * 11), "ten were fired");
        every_minute(&store).await;
        assert_eq!(next_of(&store).await, Some(BEGIN + MINUTE * 11), "ten were fired");
    }

    /// Schedules that another worker fires just before they are listed.
    struct FiredMeanwhile {
        store: Arc<MemoryStore>,
        clock: crate::TestClock,
    }

    impl Schedules for FiredMeanwhile {
        fn list_schedules(
            &self,
            after: Option<String>,
            limit: usize,
        ) -> store::Answer<'_, store::SchedulePage> {
            Box::pin(async move {
                self.clock.advance(MINUTE);
                let schedules = self.store.schedules().unwrap();
                pass(self.store.as_ref(), schedules, "there").await?;
                schedules.list_schedules(after, limit).await
            })
        }

        fn due_schedules(
            &self,
            after: Option<String>,
            limit: usize,
        ) -> store::Answer<'_, store::DueSchedules> {
            self.store.due_schedules(after, limit)
        }

        fn fire_schedule(&self, fire: Fire) -> store::Answer<'_, Fired> {
            self.store.fire_schedule(fire)
        }

        fn put_schedule(&self, it: store::PutSchedule) -> store::Answer<'_, Schedule> {
            self.store.put_schedule(it)
        }

        fn get_schedule(&self, it: String) -> store::Answer<'_, Option<Schedule>> {
            self.store.get_schedule(it)
        }

        fn pause_schedule(&self, it: String) -> store::Answer<'_, Schedule> {
            self.store.pause_schedule(it)
        }

        fn resume_schedule(&self, it: store::Resume) -> store::Answer<'_, Schedule> {
            self.store.resume_schedule(it)
        }

        fn remove_schedule(&self, it: String) -> store::Answer<'_, bool> {
            self.store.remove_schedule(it)
        }

        fn import_schedule(
            &self,
            it: store::ImportSchedule,
        ) -> store::Answer<'_, store::ScheduleImported> {
            self.store.import_schedule(it)
        }
    }

    /// Fails where what is listed is judged by a time before it: what another has just fired comes again.
    #[tokio::test]
    async fn a_schedule_that_is_fired_meanwhile_is_not_moved_back() {
        let clock = crate::TestClock::at(BEGIN);
        let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
        every_minute(&store).await;
        let meanwhile = FiredMeanwhile { store: Arc::clone(&store), clock };
        move_back(&meanwhile, "here").await.unwrap();
        assert_eq!(next_of(&store).await, Some(BEGIN + MINUTE * 2));
    }

    /// The one schedule of a store, which comes every minute.
    async fn every_minute(store: &Arc<MemoryStore>) -> Schedule {
        let onward = Onward::with_store(Arc::clone(store) as Arc<dyn Store>);
        let setup = onward.schedule("every-minute").every(MINUTE).anchor(BEGIN);
        setup.start(REPORT, &7).await.unwrap()
    }

    async fn next_of(store: &MemoryStore) -> Option<Timestamp> {
        let name = "every-minute".to_owned();
        store.schedules().unwrap().get_schedule(name).await.unwrap().unwrap().next_at
    }

    /// Moves the next time away, as a clock that was ahead does.
    async fn move_away(store: &MemoryStore, seen: &Schedule, next_at: Option<Timestamp>) {
        let advance = Some(Advance { seen_at: seen.next_at, next_at });
        let (name, generation) = (seen.name.clone(), seen.generation);
        let caller = "there".to_owned();
        let fire = Fire { name, generation, advance, occurrences: Vec::new(), caller };
        let fired = store.schedules().unwrap().fire_schedule(fire).await.unwrap();
        assert_eq!(fired, Fired::Done(Vec::new()));
    }

    /// Fails where a clock that was so far ahead that no time was left silences a schedule for good.
    #[tokio::test]
    async fn a_schedule_that_has_lost_its_next_time_is_given_one() {
        let clock = crate::TestClock::at(BEGIN);
        let store = Arc::new(MemoryStore::with_clock(Arc::new(clock)));
        let schedule = every_minute(&store).await;
        move_away(&store, &schedule, None).await;
        let schedules = store.schedules().unwrap();
        schedules.pause_schedule(schedule.name.clone()).await.unwrap();
        move_back(schedules, "here").await.unwrap();
        assert_eq!(next_of(&store).await, None, "a paused one gets it when it is resumed");
        let (name, generation) = (schedule.name.clone(), schedule.generation);
        let resume = store::Resume { name, generation, next_at: None };
        schedules.resume_schedule(resume).await.unwrap();
        move_back(schedules, "here").await.unwrap();
        assert_eq!(next_of(&store).await, schedule.next_at);
    }

    /// Fails where a worker looks for such schedules only when it begins: the clock may have been another's.
    #[tokio::test(start_paused = true)]
    async fn schedules_are_moved_back_while_a_worker_fires() {
        let clock = crate::TestClock::at(BEGIN);
        let store = Arc::new(MemoryStore::with_clock(Arc::new(clock)));
        let schedule = every_minute(&store).await;
        let firing = tokio::spawn(fire_while(Arc::clone(&store) as Arc<dyn Store>, || true));
        tokio::time::sleep(MINUTE).await;
        move_away(&store, &schedule, Some(BEGIN + MINUTE * 1_000)).await;
        tokio::time::sleep(MOVE_BACK_EVERY + MINUTE).await;
        assert_eq!(next_of(&store).await, schedule.next_at);
        firing.abort();
    }

    /// Fails where what is due is judged by the store and fired by this process's clock: it is asked about
    /// for ever. In a thread of its own, which such a pass never gives back.
    #[test]
    fn a_pass_ends_where_this_process_is_behind_the_store() {
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let passed = runtime.block_on(async {
                let ahead = crate::TestClock::at(BEGIN);
                let store = Arc::new(MemoryStore::with_clock(Arc::new(ahead.clone())));
                every_minute(&store).await;
                ahead.advance(MINUTE);
                let behind = crate::TestClock::at(BEGIN);
                let here = MemoryStore::with_clock(Arc::new(behind));
                pass(&here, store.schedules().unwrap(), "here").await.unwrap()
            });
            done.send(passed).unwrap();
        });
        let passed = ended.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(passed, (Some(BEGIN + MINUTE * 2), false));
    }

    #[tokio::test]
    async fn a_pass_knows_the_next_time_whenever_the_clock_goes_on() {
        for jump_after in 0..12 {
            let clock = Arc::new(Jumping::default());
            clock.reads_left.store(u32::MAX, Ordering::SeqCst);
            let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>));
            let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
            let setup = onward.schedule("every-minute").every(MINUTE).anchor(BEGIN);
            setup.start(REPORT, &7).await.unwrap();
            clock.minutes.store(1, Ordering::SeqCst);
            clock.reads_left.store(jump_after, Ordering::SeqCst);
            let schedules = store.schedules().unwrap();
            let (next_at, failed) = pass(store.as_ref(), schedules, "here").await.unwrap();
            assert!(!failed);
            assert!(next_at.is_some_and(|it| it > BEGIN + MINUTE), "{next_at:?} at {jump_after}");
        }
    }
}
