//! Firing: what every worker does for all, beside sweeping.
//!
//! Owns: the rhythm, and making runs of a plan. Never decides what overlaps; the store does, in the
//! transaction that starts the runs. Whoever comes second finds that the schedule has moved on.

use std::sync::Arc;
use std::time::Duration;

use super::Times;
use super::plan::plan;
use crate::limits::{PAGE_ROWS_MAX, SCHEDULES_DUE_MAX};
use crate::model::schedule::occurrence_key;
use crate::store::{self, Advance, Fire, Fired, NewOccurrence, Occurred, Schedules, Store, Topic};
use crate::upkeep::cascade;
use crate::worker::tenure::Tenure;
use crate::{Error, RunId, Schedule, Timestamp};

/// When a schedule that could not be fired is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// How many of the store's idle looks go by between two looks at the schedules without a hint and with
/// none to come sooner: the safety net, and a hint is hardly ever lost.
const IDLE_LOOKS: u32 = 3;

/// Fires what is due, for as long as the tenure lasts.
pub(crate) async fn keep_firing(store: Arc<dyn Store>, tenure: Arc<Tenure>) {
    let Some(schedules) = store.schedules() else { return };
    let caller = crate::worker::place();
    let mut looked_at: Option<Timestamp> = None;
    while !tenure.is_over() {
        let now = store.clock().now();
        // What came before may have had a clock that was ahead.
        if looked_at.is_none_or(|before| now < before)
            && let Err(error) = move_back(store.as_ref(), schedules, &caller).await
        {
            tracing::warn!(%error, "cannot look whether schedules are ahead of their times");
        }
        looked_at = Some(now);
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

/// Moves the schedules back whose next time is later than the next from now: they were fired by a clock that was
/// ahead, and would be silent until then. No time is started twice for that: each has its own key.
async fn move_back(
    store: &dyn Store,
    schedules: &dyn Schedules,
    caller: &str,
) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = schedules.list_schedules(after.take(), PAGE_ROWS_MAX).await?;
        after = page.schedules.last().map(|last| last.name.clone());
        for schedule in page.schedules {
            let Ok(times) = Times::of(&schedule.spec) else { continue };
            let next_at = times.after(store.clock().now());
            let Some(seen_at) =
                schedule.next_at.filter(|seen| next_at.is_some_and(|it| it < *seen))
            else {
                continue;
            };
            let fire = Fire {
                name: schedule.name,
                generation: schedule.generation,
                advance: Some(Advance { seen_at, next_at }),
                occurrences: Vec::new(),
                caller: caller.to_owned(),
            };
            tracing::warn!(schedule = %fire.name, from = %seen_at, to = ?next_at, "moved back");
            match schedules.fire_schedule(fire).await {
                Ok(_) | Err(store::Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !page.more || after.is_none() {
            return Ok(());
        }
    }
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
            if let Err(error) = fire_due(store, schedules, schedule, caller).await {
                failed = true;
                tracing::warn!(schedule = %name, %error, "cannot fire; again soon");
            }
        }
    }
}

/// Fires what is due of one schedule, part by part.
pub(crate) async fn fire_due(
    store: &dyn Store,
    schedules: &dyn Schedules,
    mut schedule: Schedule,
    caller: &str,
) -> Result<(), Error> {
    let times = Times::of(&schedule.spec)?;
    while let Some(seen_at) = schedule.next_at
        && schedule.paused_at.is_none()
    {
        let now = store.clock().now();
        if seen_at > now {
            break;
        }
        let plan = plan(&schedule, &times, seen_at, now);
        let advance = Advance { seen_at, next_at: plan.next_at };
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
        move_back(store.as_ref(), schedules, "here").await.unwrap();
        assert_eq!(next().await, first, "one that is not ahead stays");
        clock.minutes.store(1_000, Ordering::SeqCst);
        pass(store.as_ref(), schedules, "here").await.unwrap();
        assert_eq!(next().await, Some(BEGIN + MINUTE * 1_001));
        clock.minutes.store(1, Ordering::SeqCst);
        move_back(store.as_ref(), schedules, "here").await.unwrap();
        assert_eq!(next().await, Some(BEGIN + MINUTE * 2));
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
