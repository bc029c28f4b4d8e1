//! Firing: each time of a schedule is fired once, whoever fires and however often, and the overlap
//! policy is kept in the transaction that starts the runs.
//!
//! A store that keeps no schedules passes by having no answer.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use super::LossyStore;
use super::schedules::{NAME, found, new_schedule};
use super::stage::*;
use crate::limits::SCHEDULE_FIRE_MAX;
use crate::store::{
    Advance, End, Error, Filter, Fire, Fired, NewOccurrence, Occurred, Outage, PutSchedule, Query,
    Resume, Settle, Store as _,
};
use crate::{LatestRun, OnConflict, Overlap, RunId, RunState, Schedule, Timestamp, Waits};

/// Firing starts the run as the schedule says, and moves the next time on.
pub async fn fired_run_is_as_the_schedule_says(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let put = PutSchedule {
        lane: Some("acme".to_owned()),
        priority: 7,
        timeout_ms: Some(60_000),
        tags: BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]),
        ..new_schedule(stage, NAME)
    };
    let schedule = store.put_schedule(put).await.unwrap();
    stage.pass(1_000);
    let fire = fire(&schedule, &[stage.now()], Some(stage.in_ms(1_000)));
    let (new, at) = (fire.occurrences[0].clone(), stage.now());
    let fired = store.fire_schedule(fire).await.unwrap();
    assert_eq!(fired, Fired::Done(vec![Occurred::Started { run: new.run }]));
    let run = stage.run(new.run).await;
    assert_eq!((run.state, run.due_at, run.created_at), (RunState::Queued, Some(at), at));
    assert_eq!((run.priority, run.deadline_at), (7, Some(stage.in_ms(60_000))));
    assert_eq!((&run.workflow, &run.queue), (&schedule.workflow, &schedule.queue));
    assert_eq!((run.input, run.key), (schedule.input.clone(), Some(new.key.clone())));
    assert_eq!((run.tags["tenant"].as_str(), run.lane.as_deref()), ("acme", Some("acme")));
    assert_eq!(
        (&run.tags["schedule"], &run.tags["scheduled_at"]),
        (&NAME.to_owned(), &at.to_string())
    );
    assert_eq!(stage.by_key(&new.key).await, Some(new.run));
    let after = found(stage).await;
    let latest = LatestRun { at, workflow: schedule.workflow.clone(), key: new.key };
    assert_eq!((after.next_at, after.latest), (Some(stage.in_ms(1_000)), Some(latest)));
    assert_eq!(after.changed_at, schedule.changed_at);
}

/// The same firing again is late, and changes nothing.
pub async fn fire_schedule_twice(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due(stage, Overlap::Allow).await;
    store.fire_schedule(fire.clone()).await.unwrap();
    let before = stage.snapshot().await;
    stage.pass(5);
    assert_eq!(store.fire_schedule(fire).await.unwrap(), Fired::Late);
    stage.assert_unchanged(&before).await;
}

/// A firing whose answer was lost is done once.
pub async fn lost_answer_of_a_firing(stage: &Stage) {
    if stage.store.schedules().is_none() {
        return;
    }
    let fire = due(stage, Overlap::Allow).await;
    let lossy = LossyStore::around(stage.store.clone());
    let store = lossy.schedules().unwrap();
    lossy.lose_next(1);
    let lost = store.fire_schedule(fire.clone()).await;
    assert!(matches!(lost, Err(Error::Unavailable(Outage::NoAnswer, _))), "{lost:?}");
    assert_eq!(store.fire_schedule(fire).await.unwrap(), Fired::Late);
    assert_eq!(runs(stage).await.len(), 1);
}

/// Ten that fire one time at once, over two handles, start one run.
pub async fn concurrent_firings_start_one_run(stage: &Stage) {
    if stage.store.schedules().is_none() {
        return;
    }
    for overlap in Overlap::ALL {
        let name = format!("by-{overlap}");
        let put = PutSchedule { overlap, ..new_schedule(stage, &name) };
        let put = PutSchedule { next_at: Some(stage.now()), ..put };
        let schedule = stage.store.schedules().unwrap().put_schedule(put).await.unwrap();
        let mut firing = JoinSet::new();
        for number in 0..10 {
            let store = if number % 2 == 0 { stage.store.clone() } else { stage.other.clone() };
            let fire = fire(&schedule, &[stage.now()], Some(stage.in_ms(1_000)));
            firing.spawn(async move { store.schedules().unwrap().fire_schedule(fire).await });
        }
        let all = firing.join_all().await;
        let done = all.iter().filter(|fired| matches!(fired, Ok(Fired::Done(_)))).count();
        assert_eq!(done, 1, "{all:?}");
        let tags = BTreeMap::from([("schedule".to_owned(), name)]);
        let filter = Filter { tags, ..Filter::default() };
        let query = Query { filter, limit: 10, ..Query::default() };
        assert_eq!(stage.store.list(query).await.unwrap().runs.len(), 1);
    }
}

/// A schedule that was changed, paused or removed since is not fired by what was seen before.
pub async fn firing_by_an_old_look_is_late(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due(stage, Overlap::Allow).await;
    store.pause_schedule(NAME.to_owned()).await.unwrap();
    assert_eq!(store.fire_schedule(fire.clone()).await.unwrap(), Fired::Late);
    let (name, next_at) = (NAME.to_owned(), Some(stage.now()));
    store.resume_schedule(Resume { name, generation: 1, next_at }).await.unwrap();
    let put = PutSchedule { input: json(9), ..new_schedule(stage, NAME) };
    store.put_schedule(put).await.unwrap();
    assert_eq!(store.fire_schedule(fire.clone()).await.unwrap(), Fired::Late);
    assert!(store.remove_schedule(NAME.to_owned()).await.unwrap());
    assert!(matches!(store.fire_schedule(fire).await, Err(Error::NotFound)));
    assert!(runs(stage).await.is_empty());
}

/// A firing that starts nothing moves the next time on: what was missed is skipped.
pub async fn firing_of_nothing_moves_on(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let schedule = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    stage.pass(60_000);
    let fire = fire(&schedule, &[], Some(stage.in_ms(1_000)));
    assert_eq!(store.fire_schedule(fire).await.unwrap(), Fired::Done(vec![]));
    let after = found(stage).await;
    assert_eq!((after.next_at, after.latest), (Some(stage.in_ms(1_000)), None));
}

/// A time whose run is there, because of a backfill, starts no other.
pub async fn time_that_has_its_run_starts_no_other(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due(stage, Overlap::Allow).await;
    let key = &fire.occurrences[0].key;
    let there = stage.start(keyed(key, 1, OnConflict::Existing)).await;
    let fired = store.fire_schedule(fire.clone()).await.unwrap();
    assert_eq!(fired, Fired::Done(vec![Occurred::Existing { run: there }]));
    assert_eq!(runs(stage).await, [there]);
    assert_eq!(found(stage).await.latest.map(|latest| latest.key), Some(key.clone()));
}

/// A key that a run with another input has stops nothing but that one time.
pub async fn time_whose_key_is_taken_is_refused_alone(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let schedule = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    stage.pass(2_000);
    let fire = fire(&schedule, &[stage.now(), stage.in_ms(1)], None);
    let holder = stage.start(keyed(&fire.occurrences[0].key, 9, OnConflict::Existing)).await;
    let run = fire.occurrences[1].run;
    let fired = store.fire_schedule(fire).await.unwrap();
    let expected = vec![Occurred::Refused { holder }, Occurred::Started { run }];
    assert_eq!(fired, Fired::Done(expected));
    assert_eq!(found(stage).await.next_at, None);
}

/// `Skip` starts nothing while the latest run is live, in one firing and in the next.
pub async fn skip_starts_nothing_beside_a_live_run(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due_twice(stage, Overlap::Skip).await;
    let live = fire.occurrences[0].run;
    let fired = store.fire_schedule(fire).await.unwrap();
    let expected = vec![Occurred::Started { run: live }, Occurred::Skipped { live }];
    assert_eq!(fired, Fired::Done(expected));
    assert_eq!(fire_next(stage).await, Occurred::Skipped { live });
    let worker = stage.worker().await;
    let lease = worker.take(live).await;
    assert_eq!(fire_next(stage).await, Occurred::Skipped { live });
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    assert!(matches!(fire_next(stage).await, Occurred::Started { .. }));
}

/// `Allow` starts a run for each time.
pub async fn allow_starts_beside_a_live_run(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due_twice(stage, Overlap::Allow).await;
    let expected = fire.occurrences.iter().map(|new| Occurred::Started { run: new.run }).collect();
    assert_eq!(store.fire_schedule(fire).await.unwrap(), Fired::Done(expected));
    assert!(matches!(fire_next(stage).await, Occurred::Started { .. }));
    assert_eq!(runs(stage).await.len(), 3);
}

/// `CancelPrevious` ends a queued run at once, asks a running one to end, and starts behind it.
pub async fn cancel_previous_starts_behind_the_run_it_ends(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due_twice(stage, Overlap::CancelPrevious).await;
    let (first, second) = (fire.occurrences[0].run, fire.occurrences[1].run);
    let fired = store.fire_schedule(fire).await.unwrap();
    let replaced = Occurred::Replaced { run: second, previous: first };
    assert_eq!(fired, Fired::Done(vec![Occurred::Started { run: first }, replaced]));
    assert_eq!(stage.state(first).await, RunState::Cancelled);
    let worker = stage.worker().await;
    let lease = worker.take(second).await;
    let third = fire_next(stage).await;
    let Occurred::Replaced { run: third, previous } = third else { panic!("{third:?}") };
    assert_eq!(previous, second);
    assert!(stage.run(second).await.cancel_at.is_some());
    assert!(matches!(stage.run(third).await.waits_for, Some(Waits::Behind { .. })));
    let fourth = fire_next(stage).await.run().unwrap();
    assert_eq!(stage.state(third).await, RunState::Cancelled, "it never began");
    worker.assert_nothing_to_claim().await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    worker.take(fourth).await;
}

/// `BufferOne` lets one run wait for the end of the live one, and skips the rest.
pub async fn buffer_one_lets_one_run_wait(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due_twice(stage, Overlap::BufferOne).await;
    let (first, second) = (fire.occurrences[0].run, fire.occurrences[1].run);
    let fired = store.fire_schedule(fire).await.unwrap();
    let buffered = Occurred::Buffered { run: second, behind: first };
    assert_eq!(fired, Fired::Done(vec![Occurred::Started { run: first }, buffered]));
    assert_eq!(fire_next(stage).await, Occurred::Skipped { live: second });
    let worker = stage.worker().await;
    let lease = worker.take(first).await;
    worker.assert_nothing_to_claim().await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    let lease = worker.take(second).await;
    let third = fire_next(stage).await;
    assert!(matches!(third, Occurred::Buffered { behind, .. } if behind == second), "{third:?}");
    stage.settle(lease, failed_at("pay")).await.unwrap();
    worker.take(third.run().unwrap()).await;
}

/// A run that is buffered while the one before ends is never left behind: it waits for it, or begins.
pub async fn buffering_racing_the_end_strands_no_run(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let fire = due(stage, Overlap::BufferOne).await;
    let mut latest = fire.occurrences[0].run;
    store.fire_schedule(fire).await.unwrap();
    let worker = stage.worker().await;
    for _ in 0..20 {
        let lease = worker.take(latest).await;
        let other = stage.other.clone();
        let ending = tokio::spawn(async move {
            other.settle(lease, Settle::new(Vec::new(), End::Completed(json(1)))).await
        });
        let occurred = fire_next(stage).await;
        ending.await.unwrap().unwrap();
        latest = occurred.run().unwrap();
    }
    worker.take(latest).await;
}

/// Fires a schedule once, and lets its run go on as another, whose id this is.
async fn gone_on(stage: &Stage, overlap: Overlap) -> RunId {
    let fire = due(stage, overlap).await;
    let first = fire.occurrences[0].run;
    stage.store.schedules().unwrap().fire_schedule(fire).await.unwrap();
    let lease = stage.worker().await.take(first).await;
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(2), undelivered: Vec::new() };
    stage.store.settle(lease, Settle::new(Vec::new(), end)).await.unwrap();
    assert_eq!(stage.state(first).await, RunState::Completed);
    next
}

/// A run that goes on as another is live as long as that one is.
pub async fn continuation_of_the_latest_run_is_live(stage: &Stage) {
    if stage.store.schedules().is_none() {
        return;
    }
    let next = gone_on(stage, Overlap::Skip).await;
    assert_eq!(fire_next(stage).await, Occurred::Skipped { live: next });
}

/// What waits for a run that goes on as another waits for that one.
pub async fn buffer_one_waits_for_a_continuation(stage: &Stage) {
    if stage.store.schedules().is_none() {
        return;
    }
    let next = gone_on(stage, Overlap::BufferOne).await;
    let buffered = fire_next(stage).await;
    assert!(
        matches!(buffered, Occurred::Buffered { behind, .. } if behind == next),
        "{buffered:?}"
    );
    let worker = stage.worker().await;
    let lease = worker.take(next).await;
    worker.assert_nothing_to_claim().await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    worker.take(buffered.run().unwrap()).await;
}

/// What takes the place of a run that goes on as another ends that one.
pub async fn cancel_previous_ends_a_continuation(stage: &Stage) {
    if stage.store.schedules().is_none() {
        return;
    }
    let next = gone_on(stage, Overlap::CancelPrevious).await;
    let worker = stage.worker().await;
    let lease = worker.take(next).await;
    let replaced = fire_next(stage).await;
    let Occurred::Replaced { run, previous } = replaced else { panic!("{replaced:?}") };
    assert_eq!(previous, next);
    assert!(stage.run(next).await.cancel_at.is_some());
    worker.assert_nothing_to_claim().await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    worker.take(run).await;
}

/// A run that is asked for out of turn leaves the next time, counts for the policy, and is started
/// once however often that is repeated.
pub async fn trigger_twice(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let schedule = store.put_schedule(new_schedule(stage, NAME)).await.unwrap();
    store.pause_schedule(NAME.to_owned()).await.unwrap();
    let trigger = Fire { advance: None, ..fire(&schedule, &[stage.now()], None) };
    let run = trigger.occurrences[0].run;
    let started = Fired::Done(vec![Occurred::Started { run }]);
    assert_eq!(store.fire_schedule(trigger.clone()).await.unwrap(), started);
    let before = stage.snapshot().await;
    assert_eq!(store.fire_schedule(trigger).await.unwrap(), started);
    stage.assert_unchanged(&before).await;
    assert_eq!(found(stage).await.next_at, schedule.next_at);
    let other = Fire { advance: None, ..fire(&schedule, &[stage.in_ms(1)], None) };
    let skipped = Fired::Done(vec![Occurred::Skipped { live: run }]);
    assert_eq!(store.fire_schedule(other).await.unwrap(), skipped);
}

/// As many times as one firing may have are started in order.
pub async fn full_firing_starts_every_run(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let put = PutSchedule { overlap: Overlap::Allow, ..new_schedule(stage, NAME) };
    let schedule = store.put_schedule(put).await.unwrap();
    let times: Vec<_> = (0..SCHEDULE_FIRE_MAX).map(|n| stage.in_ms(n as u64)).collect();
    let fire = fire(&schedule, &times, None);
    let ids: Vec<_> = fire.occurrences.iter().map(|new| new.run).collect();
    store.fire_schedule(fire).await.unwrap();
    let mut started = runs(stage).await;
    started.reverse();
    assert_eq!(started, ids);
}

pub(super) fn fire(schedule: &Schedule, times: &[Timestamp], next_at: Option<Timestamp>) -> Fire {
    let (name, generation) = (&schedule.name, schedule.generation);
    let occurrence = |at: &Timestamp| NewOccurrence {
        at: *at,
        run: RunId::new(),
        key: format!("schedule/{name}/{at}"),
        input: None,
    };
    Fire {
        name: name.clone(),
        generation,
        advance: Some(Advance { seen_at: schedule.next_at, next_at }),
        occurrences: times.iter().map(occurrence).collect(),
        caller: "stage".to_owned(),
    }
}

/// A schedule that is due, and the firing of that time.
pub(super) async fn due(stage: &Stage, overlap: Overlap) -> Fire {
    let mut fire = due_twice(stage, overlap).await;
    fire.occurrences.truncate(1);
    fire
}

/// A schedule of which two times are due, and the firing of both.
async fn due_twice(stage: &Stage, overlap: Overlap) -> Fire {
    let put = PutSchedule { overlap, ..new_schedule(stage, NAME) };
    let schedule = stage.store.schedules().unwrap().put_schedule(put).await.unwrap();
    stage.pass(2_000);
    fire(&schedule, &[stage.now(), stage.in_ms(1)], Some(stage.in_ms(1_000)))
}

/// Fires the schedule once more.
async fn fire_next(stage: &Stage) -> Occurred {
    let schedule = found(stage).await;
    stage.pass(1_000);
    let fire = fire(&schedule, &[stage.now()], Some(stage.in_ms(1_000)));
    match stage.other.schedules().unwrap().fire_schedule(fire).await.unwrap() {
        Fired::Done(all) => all[0],
        Fired::Late => panic!("nobody else fires"),
    }
}

/// The runs, newest first.
async fn runs(stage: &Stage) -> Vec<RunId> {
    stage.snapshot().await.runs.iter().map(|run| run.id).collect()
}
