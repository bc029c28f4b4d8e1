//! Runs that wait one behind the other: missed times of a schedule, and those that end before their
//! turn.
//!
//! A store that keeps no schedules passes by having no answer.

use super::firing::fire;
use super::schedules::{NAME, found, new_schedule};
use super::stage::*;
use crate::limits::SCHEDULE_GRACE;
use crate::store::{End, Fired, Lease, Occurred, PutSchedule};
use crate::{CatchUp, Overlap, RunId, RunState, Waits};

const TIMEOUT_MS: u64 = 1_000;

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
