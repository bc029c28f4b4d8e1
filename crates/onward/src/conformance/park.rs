//! Parking and waking: no wake-up is lost, in whatever order it meets the wait.

use super::stage::*;
use crate::store::{End, Lease, Settled};
use crate::{RunState, Waits};

/// A parked run waits, costs no lease, and shows what it waits for.
pub async fn parked_run_shows_what_it_waits_for(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let wake_at = Some(stage.in_ms(60_000));
    let settled = stage.settle(lease, parked_until(wake_at, 0)).await.unwrap();
    assert_eq!(settled, Settled::AsSaid);
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.worker, run.due_at), (RunState::Waiting, None, wake_at));
    assert_eq!(run.waits_for, Some(Waits::Timer { step: "$sleep".into() }));
    worker.assert_nothing_to_claim().await;
}

/// A due timer wakes its run at its time, and not before, for a claim.
pub async fn due_timer_wakes_for_a_claim(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.settle(lease, parked_until(Some(stage.in_ms(100)), 0)).await.unwrap();
    stage.pass(99);
    worker.assert_nothing_to_claim().await;
    stage.pass(1);
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!(claimed.run.waits_for, None);
    assert_eq!(claimed.run.wakes, 1, "the time woke it once");
}

/// A timer that fell due while no worker was alive wakes its run when one comes.
pub async fn timer_due_while_nobody_lived_still_wakes(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.settle(lease, parked_until(Some(stage.in_ms(100)), 0)).await.unwrap();
    stage.store.leave(worker.id).await.unwrap();
    stage.pass(1_000_000_000);
    stage.worker().await.take(lease.run).await;
}

/// A park until a time that has passed is claimable at once.
pub async fn park_until_a_past_time_is_due_at_once(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let past = stage.now();
    stage.pass(10);
    stage.settle(lease, parked_until(Some(past), 0)).await.unwrap();
    worker.take(lease.run).await;
}

/// Claim, wake, park: the park finds the wake and queues the run at once.
pub async fn wake_before_the_park_queues_at_once(stage: &Stage) {
    let worker = stage.worker().await;
    let (lease, wakes_seen) = recorded(stage, &worker).await;
    stage.store.cancel(lease.run).await.unwrap();
    let settled = stage.settle(lease, parked(wakes_seen)).await.unwrap();
    assert_eq!(settled, Settled::Queued);
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.waits_for, run.worker), (RunState::Queued, None, None));
    assert!(worker.take_whole(lease.run).await.run.cancel_at.is_some());
}

/// Claim, park, wake: the wake queues the run.
pub async fn wake_after_the_park_queues_the_run(stage: &Stage) {
    let worker = stage.worker().await;
    let (lease, wakes_seen) = recorded(stage, &worker).await;
    let settled = stage.settle(lease, parked(wakes_seen)).await.unwrap();
    assert_eq!(settled, Settled::AsSaid);
    stage.store.cancel(lease.run).await.unwrap();
    assert!(worker.take_whole(lease.run).await.run.cancel_at.is_some());
}

/// Wake, claim, park: a wake that the claim has told of does not queue the run again.
pub async fn wake_before_the_claim_is_known_to_it(stage: &Stage) {
    let worker = stage.worker().await;
    let (lease, wakes_seen) = recorded(stage, &worker).await;
    stage.settle(lease, parked(wakes_seen)).await.unwrap();
    stage.store.cancel(lease.run).await.unwrap();
    let claimed = worker.take_whole(lease.run).await;
    let settled = stage.settle(claimed.lease, parked(claimed.run.wakes)).await.unwrap();
    assert_eq!(settled, Settled::AsSaid);
    assert_eq!(stage.state(lease.run).await, RunState::Waiting);
}

/// A wake that races a park, through two handles, is never lost.
pub async fn wake_racing_a_park_is_never_lost(stage: &Stage) {
    let worker = stage.worker().await;
    for round in 0..20 {
        let (lease, wakes_seen) = recorded(stage, &worker).await;
        let other = stage.other.clone();
        let waking = tokio::spawn(async move { other.cancel(lease.run).await });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        stage.settle(lease, parked(wakes_seen)).await.unwrap();
        waking.await.unwrap().unwrap();
        let claimed = worker.take_whole(lease.run).await;
        assert!(claimed.run.cancel_at.is_some());
        stage.settle(claimed.lease, End::Cancelled).await.unwrap();
    }
}

/// A wake between two attempts is not mistaken for one of the attempt before.
pub async fn wakes_are_counted_over_attempts(stage: &Stage) {
    let worker = stage.worker().await;
    let (lease, wakes_seen) = recorded(stage, &worker).await;
    stage.settle(lease, parked_until(Some(stage.in_ms(5)), wakes_seen)).await.unwrap();
    stage.pass(5);
    let second = worker.take_whole(lease.run).await;
    assert!(second.run.wakes > wakes_seen, "the timer counts as a wake-up");
    let stale = stage.settle(second.lease, parked(wakes_seen)).await.unwrap();
    assert_eq!(stale, Settled::Queued, "the holder did not know of the latest wake");
    let third = worker.take_whole(lease.run).await;
    let settled = stage.settle(third.lease, parked(third.run.wakes)).await.unwrap();
    assert_eq!(settled, Settled::AsSaid);
}

async fn recorded(stage: &Stage, worker: &Worker) -> (Lease, u64) {
    let run = stage.start(new_run()).await;
    let claimed = worker.take_whole(run).await;
    stage.record(claimed.lease, vec![done(1, "pay", 1)]).await.unwrap();
    (claimed.lease, claimed.run.wakes)
}
