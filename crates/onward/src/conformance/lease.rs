//! Leases: joining, renewing, losing and leaving.

use super::stage::*;
use crate::RunState;
use crate::limits::LOST_WORKERS_KEPT;
use crate::store::{End, ExpiredLeases, Sweep, Swept};

/// A join that is repeated changes nothing.
pub async fn join_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let before = stage.snapshot().await;
    stage.store.join(worker.entry()).await.unwrap();
    stage.assert_unchanged(&before).await;
}

/// A worker that was marked lost cannot join again under its name.
pub async fn join_with_stale_lease(stage: &Stage) {
    let (lost, _live) = stage.lost_worker().await;
    let before = stage.snapshot().await;
    assert_lost(stage.store.join(lost.entry()).await);
    stage.assert_unchanged(&before).await;
}

/// A renewal says until when the lease holds.
pub async fn renew_moves_the_lease(stage: &Stage) {
    let worker = stage.worker().await;
    stage.pass(3_000);
    let until = worker.renew().await.unwrap().until;
    assert_eq!(until, stage.in_ms(LEASE_MS as u64));
    assert_eq!(stage.store.stats().await.unwrap().workers[0].lease_until, until);
}

/// A renewal that is repeated gives the same answer.
pub async fn renew_twice(stage: &Stage) {
    let worker = stage.worker().await;
    stage.pass(3_000);
    let first = worker.renew().await.unwrap();
    let before = stage.snapshot().await;
    assert_eq!(worker.renew().await.unwrap(), first);
    stage.assert_unchanged(&before).await;
}

/// A renewal returns the runs that the worker holds, with their attempts.
pub async fn renew_says_what_is_held(stage: &Stage) {
    let (worker, other) = (stage.worker().await, stage.worker().await);
    assert_eq!(worker.renew().await.unwrap().held, []);
    let mut held = [stage.running(&worker).await, stage.running(&worker).await];
    held.sort_by_key(|lease| lease.run);
    let others = [stage.running(&other).await];
    assert_eq!(worker.renew().await.unwrap().held, held);
    assert_eq!(other.renew().await.unwrap().held, others);
    stage.settle(held[0], End::Released).await.unwrap();
    assert_eq!(worker.renew().await.unwrap().held, held[1..]);
    held[0] = worker.take(held[0].run).await;
    assert_eq!((held[0].attempt, worker.renew().await.unwrap().held), (2, held.to_vec()));
}

/// A lost lease is never revived.
pub async fn renew_with_stale_lease(stage: &Stage) {
    let (lost, _live) = stage.lost_worker().await;
    let before = stage.snapshot().await;
    assert_lost(lost.renew().await);
    stage.assert_unchanged(&before).await;
}

/// A worker that never joined has nothing to renew.
pub async fn renew_of_an_unknown_worker_is_refused(stage: &Stage) {
    let stranger = Worker::new(stage.store.clone(), BUILD);
    assert_lost(stranger.renew().await);
    assert!(stage.store.stats().await.unwrap().workers.is_empty());
}

/// An expired lease is not a lost one: until a sweep marks it, its worker goes on.
pub async fn expired_lease_is_not_lost_until_swept(stage: &Stage) {
    let (worker, sweeper) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&worker).await;
    stage.pass(LEASE_MS as u64 * 3);
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    worker.renew().await.unwrap();
    let swept = sweeper.sweep().await;
    assert!(swept.lost.is_empty() && swept.taken.is_empty(), "{swept:?}");
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
}

/// A clock that is set back makes no dead worker live on: its lease is further ahead than any that is renewed.
/// Who renews is left alone.
pub async fn lease_from_before_the_clock_was_set_back_has_expired(stage: &Stage) {
    let (dead, live, sweeper) = (stage.worker().await, stage.worker().await, stage.worker().await);
    let lease = stage.running(&dead).await;
    stage.clock.set_back(std::time::Duration::from_secs(3_600));
    assert!(sweeper.sweep().await.lost.is_empty(), "it cannot tell who lives");
    live.renew().await.unwrap();
    sweeper.renew().await.unwrap();
    let swept = sweeper.sweep().await;
    assert_eq!((swept.lost, swept.taken), (vec![dead.id], vec![lease.run]));
    // A small correction makes nobody look dead.
    stage.clock.set_back(std::time::Duration::from_millis(LEASE_MS as u64 / 2));
    sweeper.renew().await.unwrap();
    assert!(sweeper.sweep().await.lost.is_empty());
    live.renew().await.unwrap();
}

/// A worker that was marked lost has lost every right.
pub async fn lost_worker_can_do_nothing(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.lose(&old, &live).await;
    let before = stage.snapshot().await;
    assert_lost(old.renew().await);
    assert_lost(stage.store.join(old.entry()).await);
    assert_lost(stage.store.claim(old.next_claim(1)).await);
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    assert_lost(stage.settle(lease, End::Completed(json(1))).await);
    assert_lost(stage.store.sweep(old.next_sweep()).await);
    stage.assert_unchanged(&before).await;
}

/// A worker that was lost so long ago that a sweep forgot it has no more rights than before.
pub async fn forgotten_worker_can_do_nothing(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.lose(&old, &live).await;
    stage.pass(LOST_WORKERS_KEPT.as_millis() as u64 + 1);
    live.renew().await.unwrap();
    let swept = live.sweep().await;
    assert_eq!(Swept { next_at: None, ..swept }, Swept::default());
    let before = stage.snapshot().await;
    assert_lost(old.renew().await);
    assert_lost(stage.store.claim(old.next_claim(1)).await);
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    assert_lost(stage.settle(lease, End::Completed(json(1))).await);
    assert_lost(stage.store.sweep(old.next_sweep()).await);
    stage.store.leave(old.id).await.unwrap();
    stage.assert_unchanged(&before).await;
    live.take(lease.run).await;
}

/// A leave queues at once what the worker holds.
pub async fn leave_queues_its_runs_at_once(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.store.leave(old.id).await.unwrap();
    assert_eq!(stage.store.stats().await.unwrap().workers.len(), 1);
    let claimed = live.take_whole(lease.run).await;
    assert_eq!((claimed.lease.attempt, claimed.run.crashes), (2, 0));
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    assert_lost(old.renew().await);
}

/// A leave does not count as a crash, however often.
pub async fn leave_is_not_a_crash(stage: &Stage) {
    let run = stage.start(new_run()).await;
    for _ in 0..crate::limits::CRASHES_MAX {
        let worker = stage.worker().await;
        worker.take(run).await;
        stage.store.leave(worker.id).await.unwrap();
    }
    let run = stage.run(run).await;
    assert_eq!((run.state, run.crashes), (RunState::Queued, 0));
}

/// A leave that is repeated, even after another took the run, changes nothing.
pub async fn leave_twice(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.store.leave(old.id).await.unwrap();
    let before = stage.snapshot().await;
    stage.store.leave(old.id).await.unwrap();
    stage.assert_unchanged(&before).await;
    live.take(lease.run).await;
    let before = stage.snapshot().await;
    stage.store.leave(old.id).await.unwrap();
    stage.assert_unchanged(&before).await;
}

/// A leave of a worker that was marked lost and swept changes nothing.
pub async fn leave_with_stale_lease(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.lose(&old, &live).await;
    live.take(lease.run).await;
    let before = stage.snapshot().await;
    stage.store.leave(old.id).await.unwrap();
    stage.assert_unchanged(&before).await;
}

/// A leave of a worker that never joined is no error.
pub async fn leave_of_an_unknown_worker_is_no_error(stage: &Stage) {
    let stranger = Worker::new(stage.store.clone(), BUILD);
    stage.store.leave(stranger.id).await.unwrap();
    assert!(stage.store.stats().await.unwrap().workers.is_empty());
}

/// A sweep through one handle takes the lease of a worker that writes through another.
pub async fn handles_share_the_leases(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    stage.pass(LEASE_MS as u64 + 1);
    stage.other.renew(live.id).await.unwrap();
    let sweep = Sweep { worker: live.id, expired: ExpiredLeases::Take };
    let swept = stage.other.sweep(sweep).await.unwrap();
    assert_eq!((swept.lost, swept.taken), (vec![old.id], vec![lease.run]));
    assert_lost(stage.record(lease, vec![done(1, "ocr", 1)]).await);
    assert_lost(old.renew().await);
    live.take(lease.run).await;
}
