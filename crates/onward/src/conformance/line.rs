//! Runs that wait one behind the other: missed times of a schedule, and those that end before their
//! turn.
//!
//! A store that keeps no schedules passes by having no answer.

use super::firing::fire;
use super::schedules::{NAME, found, new_schedule};
use super::stage::*;
use crate::limits::SCHEDULE_GRACE;
use crate::store::{End, Fired, Lease, NewRun, Occurred, PutSchedule, StartedHow};
use crate::{CatchUp, OnConflict, Overlap, RunId, RunState, Waits};

const TIMEOUT_MS: u64 = 1_000;
const KEY: &str = "order-1";

/// `All` runs every missed time, one after the other, if the schedule allows one run at a time.
pub async fn missed_times_wait_one_behind_the_other(stage: &Stage) {
    let Some(store) = stage.store.schedules() else { return };
    let schedule = store.put_schedule(every_missed_one(stage)).await.unwrap();
    let missed: Vec<_> = (0..7).map(|n| stage.in_ms(n)).collect();
    stage.clock.advance(SCHEDULE_GRACE * 2);
    let fire_all = fire(&schedule, &missed, Some(stage.now()));
    let runs: Vec<_> = fire_all.occurrences.iter().map(|new| new.run).collect();
    let fired = store.fire_schedule(fire_all).await.unwrap();
    let behind = |pair: &[RunId]| Occurred::Buffered { run: pair[1], behind: pair[0] };
    let mut expected = vec![Occurred::Started { run: runs[0] }];
    expected.extend(runs.windows(2).map(behind));
    assert_eq!(fired, Fired::Done(expected));
    // What is on time finds that one waits.
    let on_time = fire(&found(stage).await, &[stage.now()], None);
    let skipped = Occurred::Skipped { live: runs[6] };
    assert_eq!(store.fire_schedule(on_time).await.unwrap(), Fired::Done(vec![skipped]));
    let worker = stage.worker().await;
    for run in runs {
        let lease = worker.take(run).await;
        worker.assert_nothing_to_claim().await;
        stage.settle(lease, End::Completed(json(1))).await.unwrap();
    }
}

/// If a run's time is over before its turn, the run behind it takes its place and begins when the run
/// ahead of both has ended.
pub async fn late_run_leaves_its_place_in_the_line(stage: &Stage) {
    let worker = stage.worker().await;
    let Some((first, middle, last)) = line_of_three(stage, &worker).await else { return };
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    assert_eq!(stage.state(middle).await, RunState::Failed);
    assert_next(stage, &worker, first, last).await;
}

/// The same holds if the run is cancelled before its turn.
pub async fn cancelled_run_leaves_its_place_in_the_line(stage: &Stage) {
    let worker = stage.worker().await;
    let Some((first, middle, last)) = line_of_three(stage, &worker).await else { return };
    stage.store.cancel(middle).await.unwrap();
    assert_eq!(stage.state(middle).await, RunState::Cancelled);
    assert_next(stage, &worker, first, last).await;
}

/// Who comes after a run that ended before its turn still waits for the run ahead of both.
pub async fn start_after_a_run_that_ended_before_its_turn_waits(stage: &Stage) {
    let worker = stage.worker().await;
    let (first, second) = replaced(stage, &worker).await;
    stage.store.cancel(second).await.unwrap();
    let third = stage.start(keyed(KEY, 3, OnConflict::Replace)).await;
    assert_next(stage, &worker, first, third).await;
}

/// A run that is retried after it ended before its turn waits in its place again.
pub async fn retried_run_takes_its_place_in_the_line_again(stage: &Stage) {
    let worker = stage.worker().await;
    let (first, second) = replaced(stage, &worker).await;
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    assert_eq!(stage.state(second).await, RunState::Failed);
    stage.store.retry(second).await.unwrap();
    let again = stage.try_start(keyed(KEY, 2, OnConflict::RetryFailed)).await.unwrap();
    assert_eq!((again.run, again.how), (second, StartedHow::Existing));
    assert_next(stage, &worker, first, second).await;
}

/// So does one that a start retries, and one whose place was taken meanwhile: each run has its turn.
pub async fn retried_run_waits_though_its_place_was_taken(stage: &Stage) {
    let worker = stage.worker().await;
    let (first, second) = replaced(stage, &worker).await;
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    let retried = stage.try_start(keyed(KEY, 2, OnConflict::RetryFailed)).await.unwrap();
    assert_eq!((retried.run, retried.how), (second, StartedHow::Retried));
    worker.assert_nothing_to_claim().await;
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    let third = stage.start(keyed(KEY, 3, OnConflict::Replace)).await;
    stage.store.retry(second).await.unwrap();
    worker.assert_nothing_to_claim().await;
    stage.settle(first, End::Cancelled).await.unwrap();
    let second = worker.take(second).await;
    worker.assert_nothing_to_claim().await;
    stage.settle(second, End::Completed(json(2))).await.unwrap();
    worker.take(third).await;
}

/// A run whose turn has come and gone waits for nobody when it is retried.
pub async fn retried_run_waits_for_no_line_that_is_over(stage: &Stage) {
    let worker = stage.worker().await;
    let (first, second) = replaced(stage, &worker).await;
    stage.pass(TIMEOUT_MS);
    worker.sweep().await;
    stage.settle(first, End::Cancelled).await.unwrap();
    stage.store.retry(second).await.unwrap();
    worker.take(second).await;
}

/// A schedule whose last run ended before its turn still has a live one.
pub async fn schedule_sees_past_a_run_that_ended_before_its_turn(stage: &Stage) {
    for overlap in [Overlap::BufferOne, Overlap::Skip, Overlap::CancelPrevious] {
        let Some((live, ended)) = live_and_ended(stage).await else { return };
        let next = fire_with(stage, overlap).await;
        let run = match (overlap, next) {
            (Overlap::BufferOne, Occurred::Buffered { run, behind }) if behind == live.run => run,
            (Overlap::CancelPrevious, Occurred::Replaced { run, previous })
                if previous == live.run =>
            {
                run
            }
            (Overlap::Skip, Occurred::Skipped { live: found }) if found == live.run => ended,
            other => panic!("{other:?} beside {live:?}"),
        };
        let worker = stage.worker().await;
        worker.assert_nothing_to_claim().await;
        stage.settle(live, End::Completed(json(1))).await.unwrap();
        if run != ended {
            let lease = worker.take(run).await;
            stage.settle(lease, End::Completed(json(1))).await.unwrap();
        }
        stage.store.schedules().unwrap().remove_schedule(NAME.to_owned()).await.unwrap();
    }
}

/// The same holds if the live run went on as another one.
pub async fn schedule_sees_past_it_to_a_continuation(stage: &Stage) {
    let Some((live, ended)) = live_and_ended(stage).await else { return };
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(2), undelivered: Vec::new() };
    stage.settle(live, end).await.unwrap();
    let buffered = fire_with(stage, Overlap::BufferOne).await;
    let Occurred::Buffered { run, behind } = buffered else { panic!("{buffered:?}, not {ended}") };
    assert_eq!(behind, next);
    let worker = stage.worker().await;
    let lease = worker.take(next).await;
    assert_next(stage, &worker, lease, run).await;
}

/// A run that is held, and one of the same schedule behind it that was cancelled before its turn.
async fn live_and_ended(stage: &Stage) -> Option<(Lease, RunId)> {
    stage.store.schedules()?;
    let worker = stage.worker().await;
    let first = fire_with(stage, Overlap::BufferOne).await;
    let Occurred::Started { run } = first else { panic!("{first:?}") };
    let live = worker.take(run).await;
    let second = fire_with(stage, Overlap::BufferOne).await;
    let Occurred::Buffered { run: ended, .. } = second else { panic!("{second:?}") };
    stage.store.cancel(ended).await.unwrap();
    Some((live, ended))
}

/// Fires the schedule for the time that it is, with this policy.
async fn fire_with(stage: &Stage, overlap: Overlap) -> Occurred {
    stage.pass(1);
    let store = stage.store.schedules().unwrap();
    let put = PutSchedule { overlap, ..new_schedule(stage, NAME) };
    let schedule = store.put_schedule(put).await.unwrap();
    let fired = store.fire_schedule(fire(&schedule, &[stage.now()], schedule.next_at)).await;
    let Fired::Done(mut occurred) = fired.unwrap() else { panic!("the schedule was changed") };
    occurred.remove(0)
}

/// A run that is held, and one with a deadline that replaces it and waits for its end.
async fn replaced(stage: &Stage, worker: &Worker) -> (Lease, RunId) {
    let first = stage.start(keyed(KEY, 1, OnConflict::Existing)).await;
    let first = worker.take(first).await;
    let second = keyed(KEY, 2, OnConflict::Replace);
    let second = NewRun { timeout_ms: Some(TIMEOUT_MS as i64), ..second };
    (first, stage.start(second).await)
}

/// Asserts that the last run waits for the first, and begins at its end.
async fn assert_next(stage: &Stage, worker: &Worker, first: Lease, last: RunId) {
    worker.assert_nothing_to_claim().await;
    let waits_for = stage.run(last).await.waits_for;
    assert!(matches!(waits_for, Some(Waits::Behind { run, .. }) if run == first.run));
    assert_eq!(stage.run(first.run).await.successor, Some(last));
    stage.settle(first, End::Completed(json(1))).await.unwrap();
    worker.take(last).await;
}

/// A run that is held, one behind it that has a deadline, and one behind that.
async fn line_of_three(stage: &Stage, worker: &Worker) -> Option<(Lease, RunId, RunId)> {
    let store = stage.store.schedules()?;
    let missed: Vec<_> = (0..3).map(|n| stage.in_ms(n)).collect();
    stage.clock.advance(SCHEDULE_GRACE * 2);
    let mut runs = Vec::new();
    for (at, timeout_ms) in missed.iter().zip([None, Some(TIMEOUT_MS as i64), None]) {
        let put = PutSchedule { timeout_ms, ..every_missed_one(stage) };
        let schedule = store.put_schedule(put).await.unwrap();
        let fire = fire(&schedule, &[*at], schedule.next_at);
        runs.push(fire.occurrences[0].run);
        store.fire_schedule(fire).await.unwrap();
    }
    Some((worker.take(runs[0]).await, runs[1], runs[2]))
}

fn every_missed_one(stage: &Stage) -> PutSchedule {
    PutSchedule {
        overlap: Overlap::BufferOne,
        catch_up: CatchUp::All { max: 100 },
        ..new_schedule(stage, NAME)
    }
}
