//! Crashes: a run whose workers die is never lost, and never eats every worker.

use std::time::Duration;

use super::stage::*;
use crate::limits::{CRASH_BACKOFF_MAX, CRASHES_MAX, SUSPECT_CRASHES};
use crate::store::{End, NewRun, Settle};
use crate::{Record, RunId, RunState, Waits};

/// A loss without a record counts as a crash.
pub async fn loss_without_a_record_counts(stage: &Stage) {
    let run = stage.start(new_run()).await;
    crash(stage, run, BUILD).await;
    crash(stage, run, BUILD).await;
    let run = stage.run(run).await;
    assert_eq!((run.state, run.crashes), (RunState::Queued, 2));
}

/// A record of the lost attempt sets the count back.
pub async fn loss_with_a_record_resets_the_count(stage: &Stage) {
    let run = stage.start(new_run()).await;
    crash(stage, run, BUILD).await;
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    let lease = worker.take(run).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    stage.lose(&worker, &sweeper).await;
    assert_eq!(stage.run(run).await.crashes, 0);
    crash(stage, run, BUILD).await;
    assert_eq!(stage.run(run).await.crashes, 1, "a record of an earlier attempt is no progress");
}

/// A settle sets the count back.
pub async fn settle_resets_the_count(stage: &Stage) {
    let run = stage.start(new_run()).await;
    crash(stage, run, BUILD).await;
    let worker = stage.worker().await;
    let lease = worker.take(run).await;
    stage.settle(lease, End::Released).await.unwrap();
    assert_eq!(stage.run(run).await.crashes, 0);
}

/// A suspect waits before it is claimed again, longer with each crash, up to a limit.
pub async fn suspect_waits_longer_each_time(stage: &Stage) {
    let run = stage.start(new_run()).await;
    for _ in 1..SUSPECT_CRASHES {
        crash(stage, run, BUILD).await;
    }
    for crashes in SUSPECT_CRASHES..CRASHES_MAX {
        crash(stage, run, BUILD).await;
        let pause = Duration::from_secs(1 << (crashes - SUSPECT_CRASHES)).min(CRASH_BACKOFF_MAX);
        let found = stage.run(run).await;
        assert_eq!((found.state, found.crashes), (RunState::Waiting, crashes));
        assert_eq!(found.waits_for, Some(Waits::Backoff { crashes }));
        assert_eq!(found.due_at, Some(stage.now() + pause));
    }
}

/// A suspect is claimed alone, only by a claim that asks for one.
pub async fn suspect_is_claimed_alone(stage: &Stage) {
    let suspects = [suspect(stage).await, suspect(stage).await];
    stage.pass(60_000);
    let ordinary = stage.start(new_run()).await;
    let worker = stage.worker().await;
    let claims = worker.claim(10).await;
    assert_eq!(ids(&claims), [ordinary]);
    assert!(claims.suspect && !claims.more, "a suspect is queued, and nothing else");
    let claims = worker.claim_suspect().await;
    assert_eq!(claims.runs.len(), 1);
    assert!(claims.suspect, "the other is left");
    let claims = worker.claim_suspect().await;
    assert!(!claims.suspect && suspects.contains(&claims.runs[0].run.id));
}

/// A suspect that makes progress is one no more.
pub async fn suspect_that_settles_is_one_no_more(stage: &Stage) {
    let run = suspect(stage).await;
    stage.pass(60_000);
    let worker = stage.worker().await;
    let lease = worker.claim_suspect().await.runs[0].lease;
    stage.settle(lease, End::Released).await.unwrap();
    worker.take(run).await;
}

/// At the limit a run waits as `crash_loop`, and its build leaves it alone.
pub async fn crash_loop_waits_for_help(stage: &Stage) {
    let run = crash_loop(stage).await;
    let found = stage.run(run).await;
    assert_eq!((found.state, found.due_at), (RunState::Waiting, None));
    assert_eq!(found.stuck_builds, [BUILD]);
    let stuck = matches!(&found.waits_for, Some(Waits::Stuck { code, .. }) if code == "crash_loop");
    assert!(stuck, "{found:?}");
    let worker = stage.worker().await;
    stage.pass(1_000_000);
    worker.sweep().await;
    worker.assert_nothing_to_claim().await;
}

/// Another build's sweep queues a run in a crash loop, as an ordinary one.
pub async fn crash_loop_is_mended_by_another_build(stage: &Stage) {
    let run = crash_loop(stage).await;
    let worker = stage.worker_of("build-2").await;
    worker.sweep().await;
    assert_eq!(worker.take_whole(run).await.run.crashes, 0);
}

/// A retry queues a run in a crash loop for every build.
pub async fn crash_loop_is_mended_by_a_retry(stage: &Stage) {
    let run = crash_loop(stage).await;
    stage.store.retry(run).await.unwrap();
    let worker = stage.worker().await;
    let claimed = worker.take_whole(run).await;
    assert_eq!((claimed.run.crashes, claimed.run.stuck_builds.len()), (0, 0));
}

/// A run that is to be cancelled pauses as any suspect does, since its undos may be what kills.
pub async fn marked_run_is_held_back(stage: &Stage) {
    let run = suspect(stage).await;
    stage.pass(60_000);
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    worker.claim_suspect().await;
    stage.store.cancel(run).await.unwrap();
    stage.lose(&worker, &sweeper).await;
    let found = stage.run(run).await;
    let crashes = SUSPECT_CRASHES + 1;
    assert_eq!((found.state, found.crashes), (RunState::Waiting, crashes));
    assert_eq!(found.waits_for, Some(Waits::Backoff { crashes }));
    stage.pass(60_000);
    assert_eq!(ids(&sweeper.claim_suspect().await), [run]);
}

/// A run that is to be cancelled never waits for an operator, however often its worker dies: it
/// pauses no longer than any suspect.
pub async fn marked_run_is_never_stuck(stage: &Stage) {
    let (worker, run) = (stage.worker().await, stage.start(new_run()).await);
    let lease = worker.take(run).await;
    let settle = Settle::new(vec![done(1, "ocr", 1)], End::Released);
    stage.store.settle(lease, settle).await.unwrap();
    for _ in 0..CRASHES_MAX {
        crash(stage, run, BUILD).await;
    }
    stage.store.cancel(run).await.unwrap();
    for crashes in CRASHES_MAX + 1..CRASHES_MAX + 40 {
        crash(stage, run, BUILD).await;
        assert_eq!(stage.run(run).await.waits_for, Some(Waits::Backoff { crashes }));
    }
}

/// Nor does one whose time is over. What it did to its workers before is not forgotten, so that
/// there is an end to it.
pub async fn late_run_is_never_stuck(stage: &Stage) {
    let timeout = i64::from(CRASHES_MAX) * 100_000;
    let run = stage.start(NewRun { timeout_ms: Some(timeout), ..new_run() }).await;
    let worker = stage.worker().await;
    // Without something to undo it would need no worker, and end.
    let undoable = Record { undoable: true, ..done(1, "pay", 1) };
    let settle = Settle::new(vec![undoable], End::Released);
    stage.store.settle(worker.take(run).await, settle).await.unwrap();
    for _ in 0..CRASHES_MAX {
        crash(stage, run, BUILD).await;
    }
    assert!(matches!(stage.run(run).await.waits_for, Some(Waits::Stuck { .. })));
    stage.pass(100_000 * u64::from(CRASHES_MAX));
    let sweeper = stage.worker().await;
    sweeper.sweep().await;
    let opened = stage.run(run).await;
    assert_eq!((opened.state, opened.crashes), (RunState::Queued, CRASHES_MAX));
    for crashes in CRASHES_MAX + 1..CRASHES_MAX + 4 {
        crash(stage, run, BUILD).await;
        assert_eq!(stage.run(run).await.waits_for, Some(Waits::Backoff { crashes }));
    }
}

/// A run that a start gave to its claimant is taken back like any other.
pub async fn claimed_start_of_a_lost_worker_is_taken(stage: &Stage) {
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    let run = stage.start(NewRun { claimant: worker.claimant(), ..new_run() }).await;
    let swept = stage.lose(&worker, &sweeper).await;
    assert_eq!(swept.taken, [run]);
    assert_eq!(sweeper.take_whole(run).await.lease.attempt, 2);
}

async fn suspect(stage: &Stage) -> RunId {
    let run = stage.start(NewRun { priority: 1, ..new_run() }).await;
    for _ in 0..SUSPECT_CRASHES {
        crash(stage, run, BUILD).await;
    }
    run
}

async fn crash_loop(stage: &Stage) -> RunId {
    let run = stage.start(new_run()).await;
    for _ in 0..CRASHES_MAX {
        crash(stage, run, BUILD).await;
    }
    run
}

/// A worker claims the run, suspect or not, and dies.
async fn crash(stage: &Stage, run: RunId, build: &str) {
    let (worker, sweeper) = (stage.worker_of(build).await, stage.worker_of(build).await);
    stage.pass(60_000);
    worker.renew().await.unwrap();
    let ordinary = ids(&worker.claim(1).await);
    if ordinary.is_empty() {
        assert_eq!(ids(&worker.claim_suspect().await), [run]);
    } else {
        assert_eq!(ordinary, [run]);
    }
    let swept = stage.lose(&worker, &sweeper).await;
    assert_eq!(swept.taken, [run]);
}
