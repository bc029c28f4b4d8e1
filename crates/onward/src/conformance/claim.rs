//! Claiming: which runs a worker gets, in what order, and with what.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::stage::*;
use crate::limits::CLAIM_BATCH_MAX;
use crate::store::{Asks, Claim, End, Lease, Mark, NewRun, StartAt};
use crate::{RunId, RunState};

/// The highest priority comes first, then the longest due, then the oldest id.
pub async fn claim_order_is_priority_then_due_time_then_id(stage: &Stage) {
    let with = |priority| NewRun { priority, ..new_run() };
    let urgent_late = with(5);
    let (third, fourth) = (with(0), with(0));
    let last = with(-1);
    for run in [last.clone(), fourth.clone(), third.clone()] {
        stage.start(run).await;
    }
    stage.pass(10);
    let fifth = stage.start(with(0)).await;
    let second = stage.start(with(1)).await;
    stage.start(urgent_late.clone()).await;
    let claims = stage.worker().await.claim(10).await;
    assert_eq!(ids(&claims), [urgent_late.id, second, third.id, fourth.id, fifth, last.id]);
}

/// A claim gives the run as it stands under the new lease.
pub async fn claim_raises_the_attempt_and_names_the_holder(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(new_run()).await;
    stage.pass(5);
    let first = worker.take_whole(run).await;
    assert_eq!(first.lease, Lease { run, worker: worker.id, attempt: 1 });
    assert_eq!(first.run, stage.run(run).await);
    assert_eq!((first.run.state, first.run.worker), (RunState::Running, Some(worker.id)));
    assert_eq!((first.run.started_at, first.run.due_at), (Some(stage.now()), None));
    stage.settle(first.lease, End::Released).await.unwrap();
    let began = stage.now();
    stage.pass(5);
    let second = worker.take_whole(run).await;
    assert_eq!((second.lease.attempt, second.run.started_at), (2, Some(began)));
}

/// A delayed run is not claimed before its time, and is right at it.
pub async fn delayed_run_is_claimed_at_its_time(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(NewRun { start_at: StartAt::After(1_000), ..new_run() }).await;
    stage.pass(999);
    worker.assert_nothing_to_claim().await;
    stage.pass(1);
    worker.take(run).await;
}

/// A run that was woken late is as old as its due time.
pub async fn woken_run_is_ordered_by_its_due_time(stage: &Stage) {
    let worker = stage.worker().await;
    let later = new_run();
    let delayed = stage.start(NewRun { start_at: StartAt::After(10), ..new_run() }).await;
    stage.pass(20);
    stage.start(later.clone()).await;
    assert_eq!(ids(&worker.claim(2).await), [delayed, later.id], "though its id is younger");
}

/// A claim takes only runs of the queues and workflows that it names.
pub async fn claim_takes_only_what_it_serves(stage: &Stage) {
    let worker = stage.worker().await;
    stage.start(NewRun { queue: "slow".into(), ..new_run() }).await;
    stage.start(NewRun { workflow: "refund".into(), ..new_run() }).await;
    let claims = worker.claim(10).await;
    assert!(claims.runs.is_empty() && !claims.more, "{claims:?}");
    let both = Claim {
        queues: vec![QUEUE.into(), "slow".into()],
        workflows: vec![WORKFLOW.into(), "refund".into()],
        ..worker.next_claim(10)
    };
    assert_eq!(stage.store.claim(both).await.unwrap().runs.len(), 2);
}

/// A claim takes no more than its limit, and says whether more are there.
pub async fn claim_takes_no_more_than_its_limit(stage: &Stage) {
    let worker = stage.worker().await;
    for _ in 0..3 {
        stage.start(new_run()).await;
    }
    let first = worker.claim(2).await;
    assert_eq!((first.runs.len(), first.more), (2, true));
    let second = worker.claim(2).await;
    assert_eq!((second.runs.len(), second.more), (1, false));
}

/// A claim is bounded, whatever its limit says.
pub async fn claim_is_bounded(stage: &Stage) {
    let worker = stage.worker().await;
    let runs = (0..=CLAIM_BATCH_MAX).map(|_| new_run()).collect();
    stage.store.start(runs).await.unwrap();
    let claims = worker.claim(usize::MAX).await;
    assert_eq!((claims.runs.len(), claims.more), (CLAIM_BATCH_MAX, true));
}

/// A claim of none takes nothing, and tells marks, the next due time and what is queued.
pub async fn claim_of_none_only_reads(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.store.cancel(lease.run).await.unwrap();
    stage.start(new_run()).await;
    stage.start(NewRun { start_at: StartAt::After(1_000), ..new_run() }).await;
    let before = stage.snapshot().await;
    let claims = worker.claim(0).await;
    assert!(claims.runs.is_empty() && claims.more && !claims.suspect);
    assert_eq!(claims.marks, [Mark { lease, asks: Asks::End }]);
    assert_eq!(claims.next_due, Some(stage.in_ms(1_000)));
    stage.assert_unchanged(&before).await;
}

/// A worker sees the marks of the runs that it holds, and of no others.
pub async fn claim_tells_marks_to_the_holder_only(stage: &Stage) {
    let (one, two) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&one).await;
    stage.running(&two).await;
    stage.store.cancel(lease.run).await.unwrap();
    assert_eq!(one.claim(0).await.marks, [Mark { lease, asks: Asks::End }]);
    assert_eq!(two.claim(0).await.marks, []);
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert_eq!(one.claim(0).await.marks, []);
}

/// The next due time is the earliest of any queue, and goes when its run wakes.
pub async fn claim_tells_the_next_due_time(stage: &Stage) {
    let worker = stage.worker().await;
    assert_eq!(worker.claim(1).await.next_due, None);
    let after = |ms| NewRun { start_at: StartAt::After(ms), ..new_run() };
    stage.start(after(2_000)).await;
    stage.start(NewRun { queue: "slow".into(), ..after(1_000) }).await;
    assert_eq!(worker.claim(1).await.next_due, Some(stage.in_ms(1_000)));
    stage.pass(1_000);
    assert_eq!(worker.claim(1).await.next_due, Some(stage.in_ms(1_000)));
}

/// A claim brings the whole history in order, without what a retry voided.
pub async fn claim_brings_the_history_without_voided_records(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(3, "ocr", 3), done(1, "find", 1)]).await.unwrap();
    stage.record(lease, vec![failed(7, "pay")]).await.unwrap();
    stage.settle(lease, failed_at("pay")).await.unwrap();
    stage.store.retry(lease.run).await.unwrap();
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!(steps(&claimed.history), [(1, "find"), (3, "ocr")]);
    assert_eq!(claimed.last_seq, 7, "a voided number is not used again");
    assert_eq!(claimed.history[0].entry, done(1, "find", 1).entry);
}

/// A claim tells under which builds the earlier attempts executed, however they ended.
pub async fn claim_tells_the_builds_of_earlier_attempts(stage: &Stage) {
    let (one, two) = (stage.worker_of("one").await, stage.worker_of("two").await);
    let lease = stage.running(&one).await;
    stage.settle(lease, End::Released).await.unwrap();
    two.take(lease.run).await;
    two.store.leave(two.id).await.unwrap();
    let three = stage.worker_of("three").await;
    let claimed = three.take_whole(lease.run).await;
    assert_eq!(claimed.lease.attempt, 3);
    assert_eq!(claimed.builds, [(1, "one".to_owned()), (2, "two".to_owned())].into());
}

/// A claim that is repeated with its ticket gets the same runs and takes no others.
pub async fn claim_twice(stage: &Stage) {
    let worker = stage.worker().await;
    for _ in 0..3 {
        stage.start(new_run()).await;
    }
    let claim = worker.next_claim(2);
    let first = stage.store.claim(claim.clone()).await.unwrap();
    let before = stage.snapshot().await;
    let again = stage.store.claim(claim).await.unwrap();
    let leases = |runs: &[crate::store::Claimed]| -> BTreeSet<_> {
        runs.iter().map(|claimed| (claimed.lease.run, claimed.lease.attempt)).collect()
    };
    assert_eq!(leases(&again.runs), leases(&first.runs));
    assert!(again.more);
    stage.assert_unchanged(&before).await;
}

/// A repeated claim does not give a run back that the worker has settled meanwhile.
pub async fn claim_twice_after_a_settle(stage: &Stage) {
    let worker = stage.worker().await;
    let (one, two) = (stage.start(new_run()).await, stage.start(new_run()).await);
    let claim = worker.next_claim(2);
    let first = stage.store.claim(claim.clone()).await.unwrap();
    assert_eq!(ids(&first), [one, two]);
    stage.settle(first.runs[0].lease, End::Completed(json(1))).await.unwrap();
    let again = stage.store.claim(claim).await.unwrap();
    assert_eq!(ids(&again), [two]);
}

/// A worker that was marked lost claims nothing.
pub async fn claim_with_stale_lease(stage: &Stage) {
    let (lost, live) = stage.lost_worker().await;
    let run = stage.start(new_run()).await;
    let before = stage.snapshot().await;
    assert_lost(stage.store.claim(lost.next_claim(1)).await);
    assert_lost(stage.store.claim(lost.next_claim(0)).await);
    stage.assert_unchanged(&before).await;
    live.take(run).await;
}

/// A worker that never joined claims nothing.
pub async fn claim_of_an_unknown_worker_is_refused(stage: &Stage) {
    let stranger = Worker::new(stage.store.clone(), BUILD);
    let run = stage.start(new_run()).await;
    assert_lost(stage.store.claim(stranger.next_claim(1)).await);
    assert_eq!(stage.state(run).await, RunState::Queued);
}

/// Workers that claim at the same moment, through two handles, never share a run.
pub async fn concurrent_claims_never_share_a_run(stage: &Stage) {
    const RUNS: usize = 60;
    stage.store.start((0..RUNS).map(|_| new_run()).collect()).await.unwrap();
    let mut workers = JoinSet::new();
    for number in 0..6 {
        let mut worker = stage.worker().await;
        if number % 2 == 1 {
            worker.store = Arc::clone(&stage.other);
        }
        workers.spawn(async move {
            let mut taken: Vec<RunId> = Vec::new();
            loop {
                let claims = worker.claim(3).await;
                if claims.runs.is_empty() {
                    return taken;
                }
                taken.extend(ids(&claims));
            }
        });
    }
    let taken: Vec<RunId> = workers.join_all().await.concat();
    let distinct: BTreeSet<_> = taken.iter().collect();
    assert_eq!((taken.len(), distinct.len()), (RUNS, RUNS), "each run went to one worker");
}

/// A claim that races the sweep of its worker leaves no run out of reach: whoever comes first,
/// the next sweep takes the run back.
pub async fn claim_racing_a_sweep_strands_no_run(stage: &Stage) {
    for round in 0..10 {
        let (old, live) = (stage.worker().await, stage.worker().await);
        let run = stage.start(new_run()).await;
        stage.pass(LEASE_MS as u64 + 1);
        live.renew().await.unwrap();
        let (store, claim) = (Arc::clone(&stage.other), old.next_claim(1));
        let claiming = tokio::spawn(async move { store.claim(claim).await });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        live.sweep().await;
        let claimed = claiming.await.unwrap();
        live.sweep().await;
        let lease = live.take(run).await;
        if let Ok(claims) = claimed {
            assert_lost(stage.record(claims.runs[0].lease, vec![done(1, "ocr", 1)]).await);
        }
        stage.settle(lease, End::Completed(json(1))).await.unwrap();
    }
}
