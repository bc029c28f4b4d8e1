//! Sweeping: taking back what lost workers hold, and waking what is due.

use tokio::task::JoinSet;

use super::stage::*;
use crate::RunState;
use crate::limits::{CLAIM_BATCH_MAX, SWEEP_BATCH_MAX};
use crate::store::{End, ExpiredLeases, NewRun, StartAt, Sweep, Swept};

/// A sweep marks expired workers lost and queues what they hold.
pub async fn sweep_takes_the_runs_of_expired_workers(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let (one, two) = (stage.running(&old).await, stage.running(&old).await);
    let mine = stage.running(&live).await;
    let swept = stage.lose(&old, &live).await;
    assert_eq!(swept.lost, [old.id]);
    let mut taken = swept.taken;
    taken.sort();
    assert_eq!(taken, [one.run, two.run]);
    assert_eq!(stage.state(mine.run).await, RunState::Running);
    assert_eq!(ids(&live.claim(10).await), [one.run, two.run]);
}

/// A sweep that is repeated finds nothing.
pub async fn sweep_twice(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    stage.running(&old).await;
    stage.lose(&old, &live).await;
    let before = stage.snapshot().await;
    assert_eq!(live.sweep().await, Swept::default());
    stage.assert_unchanged(&before).await;
}

/// A worker that was marked lost sweeps nobody.
pub async fn sweep_with_stale_lease(stage: &Stage) {
    let (lost, live) = stage.lost_worker().await;
    stage.running(&live).await;
    stage.pass(LEASE_MS as u64 * 2);
    let before = stage.snapshot().await;
    assert_lost(stage.store.sweep(lost.next_sweep()).await);
    stage.assert_unchanged(&before).await;
}

/// A worker never sweeps itself, even when its own lease has expired.
pub async fn sweep_never_takes_itself(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.pass(LEASE_MS as u64 * 2);
    assert_eq!(worker.sweep().await, Swept::default());
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
}

/// A sweeper that cannot tell a dead worker from an outage leaves expired leases.
pub async fn sweep_leaves_expired_leases_when_told(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.pass(LEASE_MS as u64 * 2);
    live.renew().await.unwrap();
    let sweep = Sweep { worker: live.id, expired: ExpiredLeases::Leave };
    let swept = stage.store.sweep(sweep).await.unwrap();
    assert_eq!(Swept { next_at: None, ..swept }, Swept::default());
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    old.renew().await.unwrap();
}

/// A sweep wakes what is due and counts it.
pub async fn sweep_wakes_what_is_due(stage: &Stage) {
    let worker = stage.worker().await;
    let after = |ms| NewRun { start_at: StartAt::After(ms), ..new_run() };
    let (soon, late) = (stage.start(after(100)).await, stage.start(after(200)).await);
    stage.pass(100);
    let swept = worker.sweep().await;
    assert_eq!((swept.woken, swept.more), (1, false));
    let run = stage.run(soon).await;
    assert_eq!((run.state, run.due_at), (RunState::Queued, Some(stage.now())));
    assert_eq!(stage.state(late).await, RunState::Waiting);
}

/// A sweep moves a bounded number of due runs, and says that more are left.
pub async fn sweep_of_due_runs_is_bounded(stage: &Stage) {
    let worker = stage.worker().await;
    start_many(stage, SWEEP_BATCH_MAX + 1, StartAt::After(10)).await;
    stage.pass(10);
    let first = worker.sweep().await;
    assert_eq!((first.woken, first.more), (SWEEP_BATCH_MAX, true));
    let second = worker.sweep().await;
    assert_eq!((second.woken, second.more), (1, false));
}

/// A sweep takes back a bounded number of runs, and says that more are left.
pub async fn sweep_of_lost_runs_is_bounded(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    start_many(stage, SWEEP_BATCH_MAX + 1, StartAt::Now).await;
    while old.claim(CLAIM_BATCH_MAX).await.more {}
    let first = stage.lose(&old, &live).await;
    assert_eq!((first.taken.len(), first.more), (SWEEP_BATCH_MAX, true));
    let second = live.sweep().await;
    assert_eq!((second.lost.len(), second.taken.len(), second.more), (0, 1, false));
}

/// The mark on the worker is what counts: it cannot write what no sweep has yet taken from it.
pub async fn lost_worker_cannot_write_what_is_not_yet_taken(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    start_many(stage, SWEEP_BATCH_MAX + 1, StartAt::Now).await;
    let mut leases = Vec::new();
    while leases.len() <= SWEEP_BATCH_MAX {
        let claims = old.claim(CLAIM_BATCH_MAX).await;
        leases.extend(claims.runs.into_iter().map(|claimed| claimed.lease));
    }
    let swept = stage.lose(&old, &live).await;
    leases.retain(|lease| !swept.taken.contains(&lease.run));
    assert_eq!(leases.len(), 1, "one run is left with the lost worker");
    assert_lost(stage.record(leases[0], vec![done(1, "ocr", 1)]).await);
    assert_lost(stage.settle(leases[0], End::Completed(json(1))).await);
    let run = stage.run(leases[0].run).await;
    assert_eq!((run.state, run.worker), (RunState::Running, Some(old.id)));
    assert_eq!(live.sweep().await.taken, [run.id]);
}

/// A sweep mends a bounded number of stuck runs, and says that more are left.
pub async fn sweep_of_stuck_runs_is_bounded(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker_of("build-2").await);
    start_many(stage, SWEEP_BATCH_MAX + 1, StartAt::Now).await;
    let mut more = true;
    while more {
        let claims = old.claim(CLAIM_BATCH_MAX).await;
        more = claims.more;
        let mut settling = JoinSet::new();
        for claimed in claims.runs {
            let store = stage.store.clone();
            let settle = crate::store::Settle::new(vec![], stuck(0));
            settling.spawn(async move { store.settle(claimed.lease, settle).await.unwrap() });
        }
        settling.join_all().await;
    }
    assert!(new.sweep().await.more, "one stuck run is left");
    assert!(!new.sweep().await.more);
    let queued = stage.store.stats().await.unwrap().runs[&RunState::Queued];
    assert_eq!(queued, SWEEP_BATCH_MAX as u64 + 1);
}

/// Two sweeps at the same moment, through two handles, take each run once.
pub async fn concurrent_sweeps_take_each_run_once(stage: &Stage) {
    let (one, two) = (stage.worker().await, stage.worker().await);
    let old = stage.worker().await;
    let lease = stage.running(&old).await;
    stage.pass(LEASE_MS as u64 + 1);
    one.renew().await.unwrap();
    two.renew().await.unwrap();
    let (other, sweep) = (stage.other.clone(), two.next_sweep());
    let sweeping = tokio::spawn(async move { other.sweep(sweep).await.unwrap() });
    let first = one.sweep().await;
    let second = sweeping.await.unwrap();
    assert_eq!([first.lost, second.lost].concat(), [old.id]);
    assert_eq!([first.taken, second.taken].concat(), [lease.run]);
    assert_eq!(stage.run(lease.run).await.crashes, 1);
    let held = one.take(lease.run).await;
    stage.settle(held, End::Completed(json(1))).await.unwrap();
}

async fn start_many(stage: &Stage, count: usize, start_at: StartAt) {
    let mut runs: Vec<_> = (0..count).map(|_| NewRun { start_at, ..new_run() }).collect();
    while !runs.is_empty() {
        let rest = runs.split_off(runs.len().min(crate::limits::START_BATCH_MAX));
        stage.store.start(runs).await.unwrap();
        runs = rest;
    }
}
