//! Schedules: kept as they were put, the same when they are put again, and due at their time.
//!
//! A store that keeps no schedules passes by having no answer.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use super::firing::{due, fire};
use super::stage::*;
use crate::limits::{PAGE_ROWS_MAX, SCHEDULES_DUE_MAX};
use crate::store::{Error, Fired, ImportSchedule, PutSchedule, Resume, ScheduleImported, Topic};
use crate::{CatchUp, Overlap, Schedule, ScheduleSpec, Timestamp};

/// The schedule that most cases have.
pub(super) const NAME: &str = "nightly-report";

/// A put schedule is there as it was asked for, at its first generation.
pub async fn put_schedule_is_kept_as_asked(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let put = PutSchedule {
        lane: Some("acme".to_owned()),
        priority: 7,
        timeout_ms: Some(60_000),
        tags: BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]),
        overlap: Overlap::BufferOne,
        catch_up: CatchUp::All { max: 12 },
        ..new_schedule(stage, NAME)
    };
    let schedule = store.put_schedule(put.clone()).await.unwrap();
    let now = stage.now();
    assert_eq!((schedule.generation, schedule.created_at, schedule.changed_at), (1, now, now));
    assert_eq!((schedule.paused_at, schedule.latest.clone()), (None, None));
    assert_eq!((schedule.next_at, &schedule.spec), (put.next_at, &put.spec));
    assert_eq!((&schedule.workflow, &schedule.queue), (&put.workflow, &put.queue));
    assert_eq!(schedule.lane.as_deref(), Some("acme"));
    assert_eq!((&schedule.input, &schedule.tags), (&put.input, &put.tags));
    assert_eq!((schedule.overlap, schedule.catch_up), (put.overlap, put.catch_up));
    assert_eq!((schedule.priority, schedule.timeout_ms), (7, Some(60_000)));
    let found = stage.other.schedules().unwrap().get_schedule(NAME.to_owned()).await.unwrap();
    assert_eq!(found, Some(schedule));
    assert_eq!(store.get_schedule("another".to_owned()).await.unwrap(), None);
}

/// The same put again changes nothing, whenever it comes.
pub async fn put_schedule_twice(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let first = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    stage.pass(60_000);
    let again = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    assert_eq!(again, first, "the next time stays too");
}

/// The same put again moves a next time back that a clock which was ahead moved away, or took; it never moves
/// one that has come, nor any other way.
pub async fn put_again_moves_the_next_time_back(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let first = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    for away in [None, Some(stage.in_ms(900_000))] {
        let fired = store.fire_schedule(fire(&found(stage).await, &[], away)).await.unwrap();
        assert_eq!(fired, Fired::Done(Vec::new()));
        assert_eq!(found(stage).await.next_at, away);
        let again = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
        assert_eq!((&again, found(stage).await), (&first, first.clone()), "as it was before");
    }
    stage.pass(60_000);
    let again = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    assert_eq!(again.next_at, first.next_at, "it has come and is not fired yet");
    let never = PutSchedule { next_at: None, ..new_schedule(stage, NAME) };
    assert_eq!(store.put_schedule(never).await.unwrap(), again);
}

/// However far behind a clock is, no put moves the next time to a time that was fired, or to one before the
/// schedule was made: their runs may have been pruned, and would be started again.
pub async fn put_leaves_what_was_fired_and_what_came_before(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let made = stage.now();
    let first = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    let behind = |next_at| PutSchedule { next_at: Some(next_at), ..new_schedule(stage, NAME) };
    for long_ago in [Timestamp::from_millis(1_000), made] {
        assert_eq!(store.put_schedule(behind(long_ago)).await.unwrap(), first);
    }
    stage.pass(60_000);
    let at = stage.now();
    let next_at = Some(stage.in_ms(5_000));
    store.fire_schedule(fire(&first, &[at], next_at)).await.unwrap();
    let later = stage.in_ms(1_000);
    for fired in [Timestamp::from_millis(1_000), at] {
        assert_eq!(store.put_schedule(behind(fired)).await.unwrap().next_at, next_at);
    }
    assert_eq!(store.put_schedule(behind(later)).await.unwrap().next_at, Some(later));
    let spec = ScheduleSpec::Every { every_ms: 7_000, anchor: made };
    let moved = store.put_schedule(PutSchedule { spec, ..behind(made) }).await.unwrap();
    assert!(moved.next_at.is_some_and(|next_at| next_at > at), "{moved:?}");
}

/// A store whose clock is behind the making of a schedule moves no put of it back.
pub async fn put_by_a_clock_before_the_schedule_moves_nothing(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let first = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    stage.pass(60_000);
    let fire = fire(&first, &[stage.now()], Some(stage.in_ms(1_000)));
    store.fire_schedule(fire).await.unwrap();
    let before = found(stage).await;
    stage.clock.set_back(std::time::Duration::from_secs(24 * 3_600));
    assert_eq!(store.put_schedule(new_schedule(stage, NAME)).await.unwrap(), before);
}

/// Other times are another generation, and the next time is one of them.
pub async fn other_times_are_another_generation(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    stage.pass(5_000);
    let spec = ScheduleSpec::Every { every_ms: 7_000, anchor: stage.now() };
    let next_at = Some(stage.in_ms(7_000));
    let put = PutSchedule { spec, next_at, ..new_schedule(stage, NAME) };
    let changed = store.put_schedule(put).await.unwrap();
    assert_eq!((changed.generation, changed.next_at), (2, next_at));
    assert_eq!(changed.changed_at, stage.now());
    assert_ne!(changed.created_at, stage.now());
}

/// Another input is another generation at the same times; another queue is neither.
pub async fn other_input_leaves_the_times(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let first = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    stage.pass(60_000);
    let input = PutSchedule { input: json(9), ..new_schedule(stage, NAME) };
    let changed = store.put_schedule(input.clone()).await.unwrap();
    assert_eq!((changed.generation, changed.next_at), (2, first.next_at));
    let queue = PutSchedule { queue: "bulk".to_owned(), ..input };
    let changed = store.put_schedule(queue).await.unwrap();
    assert_eq!((changed.generation, changed.next_at), (2, first.next_at));
    assert_eq!(changed.queue, "bulk");
}

/// Two puts of one name at once are one schedule.
pub async fn concurrent_puts_make_one_schedule(stage: &Stage) {
    if stage.store.schedules().is_none() {
        return;
    }
    let mut puts = JoinSet::new();
    for number in 0..10 {
        let store = if number % 2 == 0 { stage.store.clone() } else { stage.other.clone() };
        let put = PutSchedule { input: json(number), ..new_schedule(stage, NAME) };
        puts.spawn(async move { store.schedules().unwrap().put_schedule(put).await });
    }
    let all = puts.join_all().await;
    let mut generations: Vec<_> = all.into_iter().map(|put| put.unwrap().generation).collect();
    generations.sort_unstable();
    assert_eq!(generations, (1..=10).collect::<Vec<_>>(), "each put sees the one before");
}

/// Schedules come by name, page by page.
pub async fn schedules_come_in_pages(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    for name in ["b", "a", "d", "c"] {
        store.put_schedule(new_schedule(stage, name)).await.unwrap();
    }
    let first = store.list_schedules(None, 3).await.unwrap();
    assert_eq!((names(&first.schedules), first.more), (vec!["a", "b", "c"], true));
    let last = store.list_schedules(Some("c".to_owned()), 3).await.unwrap();
    assert_eq!((names(&last.schedules), last.more), (vec!["d"], false));
    let all = store.list_schedules(None, PAGE_ROWS_MAX + 1).await.unwrap();
    assert_eq!((all.schedules.len(), all.more), (4, false));
}

/// A schedule is due from its next time on, unless it is paused.
pub async fn schedule_is_due_at_its_time(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let first = stage.in_ms(1_000);
    for (name, ms) in [("b", 1_000), ("a", 1_000), ("c", 5_000), ("never", 0)] {
        let next_at = (ms > 0).then(|| stage.in_ms(ms));
        store.put_schedule(PutSchedule { next_at, ..new_schedule(stage, name) }).await.unwrap();
    }
    let due = store.due_schedules(None, 10).await.unwrap();
    assert_eq!((names(&due.schedules), due.next_at), (vec![], Some(first)));
    assert_eq!(due.now, stage.now());
    stage.pass(1_000);
    let due = store.due_schedules(None, 10).await.unwrap();
    assert_eq!(due.now, stage.now());
    assert_eq!((names(&due.schedules), due.next_at), (vec!["a", "b"], Some(stage.in_ms(4_000))));
    let one = store.due_schedules(None, 1).await.unwrap();
    assert_eq!(names(&one.schedules), ["a"]);
    let rest = store.due_schedules(Some("a".to_owned()), 10).await.unwrap();
    assert_eq!(names(&rest.schedules), ["b"]);
    store.pause_schedule("b".to_owned()).await.unwrap();
    store.pause_schedule("c".to_owned()).await.unwrap();
    let due = store.due_schedules(None, 10).await.unwrap();
    assert_eq!((names(&due.schedules), due.next_at), (vec!["a"], None));
}

/// However many are asked for, a look at what is due is bounded.
pub async fn due_schedules_are_bounded(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    for number in 0..=SCHEDULES_DUE_MAX {
        let put = new_schedule(stage, &format!("s{number:03}"));
        store.put_schedule(PutSchedule { next_at: Some(stage.now()), ..put }).await.unwrap();
    }
    let due = store.due_schedules(None, usize::MAX).await.unwrap();
    assert_eq!(due.schedules.len(), SCHEDULES_DUE_MAX);
    let last = due.schedules.last().map(|schedule| schedule.name.clone());
    assert_eq!(store.due_schedules(last, usize::MAX).await.unwrap().schedules.len(), 1);
}

/// A pause holds until it is ended, and keeps its time.
pub async fn pause_schedule_twice(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    let paused = store.pause_schedule(NAME.to_owned()).await.unwrap();
    assert_eq!(paused.paused_at, Some(stage.now()));
    stage.pass(60_000);
    assert_eq!(store.pause_schedule(NAME.to_owned()).await.unwrap(), paused);
    let put = PutSchedule { priority: 3, ..new_schedule(stage, NAME) };
    assert_eq!(store.put_schedule(put).await.unwrap().paused_at, paused.paused_at);
    let nobody = store.pause_schedule("another".to_owned()).await;
    assert!(matches!(nobody, Err(Error::NotFound)));
}

/// A resumed schedule goes on where it is told; once, and not by an old look.
pub async fn resume_schedule_twice(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    store.pause_schedule(NAME.to_owned()).await.unwrap();
    stage.pass(60_000);
    let resume = |generation, ms| {
        let next_at = Some(stage.in_ms(ms));
        store.resume_schedule(Resume { name: NAME.to_owned(), generation, next_at })
    };
    assert!(resume(7, 500).await.unwrap().paused_at.is_some(), "another generation was seen");
    let resumed = resume(1, 500).await.unwrap();
    assert_eq!((resumed.paused_at, resumed.next_at), (None, Some(stage.in_ms(500))));
    assert_eq!(resume(1, 900).await.unwrap(), resumed, "it is not paused any more");
    let name = "another".to_owned();
    let nobody = store.resume_schedule(Resume { name, generation: 1, next_at: None }).await;
    assert!(matches!(nobody, Err(Error::NotFound)));
}

/// A removed schedule is gone, and its runs are not.
pub async fn remove_schedule_twice(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due(stage, Overlap::Allow).await;
    store.fire_schedule(fire).await.unwrap();
    assert!(store.remove_schedule(NAME.to_owned()).await.unwrap());
    assert!(!store.remove_schedule(NAME.to_owned()).await.unwrap());
    assert_eq!(store.get_schedule(NAME.to_owned()).await.unwrap(), None);
    assert_eq!(stage.snapshot().await.runs.len(), 1);
}

/// A schedule goes out and comes in whole; the same is passed over, another is refused.
pub async fn import_schedule_twice(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let reference = stage.reference();
    let from = reference.store.schedules().unwrap();
    let fire = due(&reference, Overlap::CancelPrevious).await;
    from.fire_schedule(fire).await.unwrap();
    let schedule = from.pause_schedule(NAME.to_owned()).await.unwrap();
    stage.pass(60_000);
    let import = |schedule: &Schedule, dry_run| {
        store.import_schedule(ImportSchedule { schedule: schedule.clone(), dry_run })
    };
    assert_eq!(import(&schedule, true).await.unwrap(), ScheduleImported::New);
    assert_eq!(store.get_schedule(NAME.to_owned()).await.unwrap(), None);
    assert_eq!(import(&schedule, false).await.unwrap(), ScheduleImported::New);
    assert_eq!(found(stage).await, schedule);
    assert_eq!(import(&schedule, false).await.unwrap(), ScheduleImported::There);
    let mut others = vec![schedule.clone(); 5];
    others[0].generation += 1;
    others[1].latest = None;
    others[2].next_at = Some(stage.now());
    others[3].paused_at = None;
    others[4].tags = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    for other in others {
        assert_eq!(import(&other, false).await.unwrap(), ScheduleImported::Differs);
        assert_eq!(found(stage).await, schedule);
    }
}

/// Whoever waits for schedules is told of one that may come sooner, by whichever handle.
pub async fn waiter_for_schedules_resolves_at_a_put(stage: &Stage) {
    if stage.store.schedules().is_none() {
        return;
    }
    let waiter = stage.store.wait(Topic::Schedules);
    let other = stage.other.schedules().unwrap();
    other.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    let deadline = std::time::Duration::from_secs(10);
    tokio::time::timeout(deadline, waiter).await.unwrap();
}

pub(super) fn new_schedule(stage: &Stage, name: &str) -> PutSchedule {
    PutSchedule {
        name: name.to_owned(),
        spec: ScheduleSpec::Cron {
            cron: "0 3 * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
        },
        workflow: WORKFLOW.to_owned(),
        input: json(1),
        queue: QUEUE.to_owned(),
        lane: None,
        priority: 0,
        timeout_ms: None,
        tags: BTreeMap::new(),
        overlap: Overlap::Skip,
        catch_up: CatchUp::One,
        next_at: Some(stage.in_ms(1_000)),
    }
}

pub(super) async fn found(stage: &Stage) -> Schedule {
    let store = stage.store.schedules().unwrap();
    store.get_schedule(NAME.to_owned()).await.unwrap().unwrap()
}

fn names(schedules: &[Schedule]) -> Vec<&str> {
    schedules.iter().map(|schedule| schedule.name.as_str()).collect()
}
