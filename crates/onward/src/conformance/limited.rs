//! Limits of queues: what a claim is given is never more than they allow, whoever claims.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinSet;

use super::queues::{limit, queues};
use super::stage::*;
use crate::limits::{CLAIM_BATCH_MAX, LANES_LOOK_MAX, SUSPECT_CRASHES};
use crate::store::{Claim, End, Lease, NewRun, StartedHow};
use crate::{Code, QueueLimits, Rate, RunId, RunState, Waits};

fn concurrency(runs: u32) -> QueueLimits {
    QueueLimits { concurrency: Some(runs), ..QueueLimits::default() }
}

fn per_lane(runs: u32) -> QueueLimits {
    QueueLimits { per_lane: Some(runs), ..QueueLimits::default() }
}

fn rate(count: u32, period_ms: i64) -> QueueLimits {
    QueueLimits { rate: Some(Rate { count, period_ms }), ..QueueLimits::default() }
}

fn in_lane(lane: &str) -> NewRun {
    NewRun { lane: Some(lane.to_owned()), ..new_run() }
}

async fn start_many(stage: &Stage, count: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for _ in 0..count {
        runs.push(stage.start(new_run()).await);
        stage.pass(1);
    }
    runs
}

async fn complete(stage: &Stage, lease: Lease) {
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
}

/// A paused queue gives nobody a run, and says that there is none; what is running goes on.
pub async fn paused_queue_gives_no_run(stage: &Stage) {
    let worker = stage.worker().await;
    let running = stage.running(&worker).await;
    queues(stage).pause_queue(QUEUE.into()).await.unwrap();
    let run = stage.start(new_run()).await;
    let claims = worker.claim(10).await;
    assert!(claims.runs.is_empty() && !claims.more && !claims.suspect, "{claims:?}");
    worker.assert_nothing_to_claim().await;
    complete(stage, running).await;
    queues(stage).resume_queue(QUEUE.into()).await.unwrap();
    worker.take(run).await;
}

/// A start never claims its run past the limits of the queue: it is only queued.
pub async fn start_into_a_limited_queue_is_not_claimed(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, concurrency(1)).await;
    let new = NewRun { claimant: worker.claimant(), ..new_run() };
    assert_eq!(stage.try_start(new).await.unwrap().how, StartedHow::New);
    let keyed = keyed("order-1", 1, crate::OnConflict::Existing);
    let new = NewRun { claimant: worker.claimant(), ..keyed };
    assert_eq!(stage.try_start(new).await.unwrap().how, StartedHow::New);
    assert_eq!(worker.claim(10).await.runs.len(), 1);
}

/// No more runs are running than the queue allows, over all workers; one that ends or waits makes
/// room for the next in line.
pub async fn concurrency_holds_over_all_workers(stage: &Stage) {
    let (one, two) = (stage.worker().await, stage.worker().await);
    limit(stage, concurrency(2)).await;
    let runs = start_many(stage, 4).await;
    let claims = one.claim(10).await;
    assert_eq!((ids(&claims), claims.more), (runs[..2].to_vec(), false));
    assert!(two.claim(10).await.runs.is_empty());
    complete(stage, claims.runs[0].lease).await;
    two.take(runs[2]).await;
    assert!(one.claim(10).await.runs.is_empty());
    let wakes_seen = claims.runs[1].run.wakes;
    let waits_for = Waits::Timer { step: "nap".to_owned() };
    let park = End::Parked { wake_at: Some(stage.in_ms(50)), waits_for, wakes_seen };
    stage.settle(claims.runs[1].lease, park).await.unwrap();
    one.take(runs[3]).await;
    stage.pass(50);
    assert!(one.claim(10).await.runs.is_empty(), "who wakes waits for room too");
}

/// The runs of a dead worker hold their room until it is swept, and go on within the limits.
pub async fn room_of_a_dead_worker_is_held_until_swept(stage: &Stage) {
    let (dead, live) = (stage.worker().await, stage.worker().await);
    limit(stage, concurrency(1)).await;
    let run = stage.start(new_run()).await;
    dead.take(run).await;
    stage.start(new_run()).await;
    stage.pass(LEASE_MS as u64 - 1);
    live.renew().await.unwrap();
    assert!(live.claim(10).await.runs.is_empty(), "it may be alive");
    stage.lose(&dead, &live).await;
    assert_eq!(live.claim(10).await.runs.len(), 1);
    assert!(live.claim(10).await.runs.is_empty());
}

/// A claim that is made again is given the same, and counts once.
pub async fn limited_claim_twice(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, QueueLimits { concurrency: Some(4), ..rate(3, 1_000) }).await;
    start_many(stage, 5).await;
    let claim = worker.next_claim(2);
    let first = stage.store.claim(claim.clone()).await.unwrap();
    let again = stage.store.claim(claim).await.unwrap();
    assert_eq!((first.runs.len(), ids(&first)), (2, ids(&again)));
    assert_eq!(worker.claim(10).await.runs.len(), 1, "the rate allows a third");
}

/// A worker that lost its lease is given nothing, and uses up nothing.
pub async fn limited_claim_with_stale_lease(stage: &Stage) {
    let (lost, live) = stage.lost_worker().await;
    limit(stage, rate(1, 1_000)).await;
    let run = stage.start(new_run()).await;
    assert_lost(stage.store.claim(lost.next_claim(1)).await);
    live.take(run).await;
}

/// No worker has more runs of the queue than it may, and the others take what it leaves.
pub async fn limit_per_worker_holds_for_each(stage: &Stage) {
    let (one, two) = (stage.worker().await, stage.worker().await);
    limit(stage, QueueLimits { per_worker: Some(2), ..QueueLimits::default() }).await;
    let runs = start_many(stage, 5).await;
    let first = one.claim(10).await;
    assert_eq!((ids(&first), first.more), (runs[..2].to_vec(), false));
    assert_eq!(ids(&two.claim(10).await), runs[2..4]);
    complete(stage, first.runs[0].lease).await;
    one.take(runs[4]).await;
}

/// The rate holds for runs that begin and for runs that go on, and the claim says when it allows the
/// next.
pub async fn rate_holds_for_each_claim(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, rate(2, 1_000)).await;
    let first = stage.start(new_run()).await;
    let lease = worker.take(first).await;
    stage.settle(lease, End::Released).await.unwrap();
    stage.pass(400);
    worker.take(first).await;
    let next = stage.start(new_run()).await;
    let claims = worker.claim(10).await;
    assert!(claims.runs.is_empty() && !claims.more, "{claims:?}");
    assert_eq!(claims.next_due, Some(stage.in_ms(600)));
    stage.pass(599);
    assert!(worker.claim(10).await.runs.is_empty());
    stage.pass(1);
    worker.take(next).await;
}

/// In no period of the rate's length are more runs granted, whenever claims come.
pub async fn rate_holds_in_every_period(stage: &Stage) {
    let worker = stage.worker().await;
    let (count, period) = (5, 100);
    limit(stage, rate(count, period)).await;
    let runs = (0..120).map(|_| new_run()).collect();
    stage.store.start(runs).await.unwrap();
    // Any steps will do; these repeat themselves late.
    let (mut step, mut granted) = (7_u64, Vec::new());
    for turn in 0..150 {
        step = (step * 31 + turn) % 53;
        stage.pass(step);
        let claims = worker.claim(1 + usize::try_from(step % 4).unwrap()).await;
        granted.extend(claims.runs.iter().map(|_| stage.now().as_millis()));
    }
    assert!(granted.len() > 100, "the rate is used: {} runs", granted.len());
    for (first, later) in granted.iter().zip(granted.iter().skip(count as usize)) {
        assert!(later - first >= period, "{granted:?}");
    }
}

/// Other limits hold from the next claim on; what is running stays so and counts.
pub async fn changed_limits_hold_at_the_next_claim(stage: &Stage) {
    let worker = stage.worker().await;
    let runs = start_many(stage, 6).await;
    let held = worker.claim(3).await;
    limit(stage, concurrency(2)).await;
    assert!(worker.claim(10).await.runs.is_empty(), "three are running");
    complete(stage, held.runs[0].lease).await;
    assert!(worker.claim(10).await.runs.is_empty(), "two are running");
    let claim = worker.next_claim(10);
    let other = stage.other.queues().unwrap();
    let put = crate::store::PutQueue { name: QUEUE.into(), limits: concurrency(4) };
    other.put_queue(put).await.unwrap();
    assert_eq!(ids(&stage.store.claim(claim).await.unwrap()), runs[3..5]);
    queues(stage).clear_queue(QUEUE.into()).await.unwrap();
    worker.take(runs[5]).await;
}

/// A claim over several queues takes in the order of claims, and no more than each allows.
pub async fn limited_queue_beside_another(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, concurrency(1)).await;
    let slow = |priority| NewRun { queue: "slow".into(), priority, ..new_run() };
    let second = stage.start(new_run()).await;
    stage.start(new_run()).await;
    stage.pass(1);
    let third = stage.start(slow(0)).await;
    let first = stage.start(slow(1)).await;
    let queues = vec![QUEUE.to_owned(), "slow".to_owned()];
    let claim = |limit| Claim { queues: queues.clone(), ..worker.next_claim(limit) };
    let claims = stage.store.claim(claim(2)).await.unwrap();
    assert_eq!((ids(&claims), claims.more), (vec![first, second], true));
    let claims = stage.store.claim(claim(2)).await.unwrap();
    assert_eq!((ids(&claims), claims.more), (vec![third], false));
}

/// Claims at the same moment, of several workers and through two handles, keep to every limit.
pub async fn concurrent_claims_keep_to_the_limits(stage: &Stage) {
    let limits = QueueLimits { concurrency: Some(7), per_worker: Some(3), ..per_lane(2) };
    limit(stage, QueueLimits { rate: Some(Rate { count: 6, period_ms: 1_000 }), ..limits }).await;
    let runs = (0..40).map(|number| in_lane(&format!("lane-{}", number % 5))).collect();
    stage.store.start(runs).await.unwrap();
    let mut claiming = JoinSet::new();
    for number in 0..6 {
        let store = if number % 2 == 0 { stage.store.clone() } else { stage.other.clone() };
        let worker = Worker::new(store, BUILD);
        worker.store.join(worker.entry()).await.unwrap();
        claiming.spawn(async move {
            let mut taken = worker.claim(2).await.runs;
            taken.extend(worker.claim(5).await.runs);
            (worker, taken)
        });
    }
    let mut taken = Vec::new();
    let mut workers = Vec::new();
    for (worker, runs) in claiming.join_all().await {
        workers.push(worker);
        taken.extend(runs);
    }
    // A claim that found the queue in another's hands looks again.
    for worker in &workers {
        taken.extend(worker.claim(5).await.runs);
    }
    assert_eq!(taken.len(), 6, "what the rate allows is given");
    let (mut lanes, mut workers) = (BTreeMap::<_, u32>::new(), BTreeMap::<_, u32>::new());
    for claimed in &taken {
        *lanes.entry(claimed.run.lane.clone()).or_default() += 1;
        *workers.entry(claimed.lease.worker).or_default() += 1;
    }
    assert!(lanes.values().all(|runs| *runs <= 2), "{lanes:?}");
    assert!(workers.values().all(|runs| *runs <= 3), "{workers:?}");
    let distinct: BTreeSet<_> = taken.iter().map(|claimed| claimed.run.id).collect();
    assert_eq!(distinct.len(), 6, "no run is given twice");
}

/// No more runs of a lane are running than may be, and a full lane holds up no other.
pub async fn lane_limit_holds_for_each(stage: &Stage) {
    let (one, two) = (stage.worker().await, stage.worker().await);
    limit(stage, per_lane(2)).await;
    let mut acme = Vec::new();
    for _ in 0..4 {
        acme.push(stage.start(in_lane("acme")).await);
        stage.pass(1);
    }
    let other = stage.start(in_lane("other")).await;
    let claims = one.claim(10).await;
    let taken: BTreeSet<_> = ids(&claims).into_iter().collect();
    assert_eq!(taken, BTreeSet::from([acme[0], acme[1], other]));
    assert!(!claims.more && two.claim(10).await.runs.is_empty());
    let ended = claims.runs.iter().find(|claimed| claimed.run.id == acme[1]).unwrap();
    complete(stage, ended.lease).await;
    two.take(acme[2]).await;
    assert!(one.claim(10).await.runs.is_empty());
}

/// Lanes take turns: one with many runs that wait for long starves none.
pub async fn lanes_take_turns(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, per_lane(100)).await;
    let mut big = Vec::new();
    for _ in 0..6 {
        big.push(stage.start(in_lane("big")).await);
        stage.pass(1);
    }
    let (a, b) = (stage.start(in_lane("a")).await, stage.start(in_lane("b")).await);
    stage.pass(1);
    let z = stage.start(NewRun { priority: 9, ..in_lane("big") }).await;
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.extend(ids(&worker.claim(1).await));
    }
    assert_eq!(turns, [a, b, z, big[0]], "priority counts within a lane");
    let c = stage.start(in_lane("c")).await;
    let rest: BTreeSet<_> = ids(&worker.claim(3).await).into_iter().collect();
    assert_eq!(rest, BTreeSet::from([c, big[1], big[2]]), "then what is left, as there is room");
}

/// With a limit of 1 the runs of a lane begin in the order of their starts; one that has begun goes
/// on before another begins.
pub async fn limit_of_one_keeps_the_order(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, per_lane(1)).await;
    let first = stage.start(in_lane("acme")).await;
    stage.pass(1);
    let second = stage.start(in_lane("acme")).await;
    stage.pass(1);
    let third = stage.start(in_lane("acme")).await;
    let lease = worker.take(first).await;
    stage.pass(1);
    stage.settle(lease, End::Released).await.unwrap();
    let lease = worker.take(first).await;
    let waits_for = Waits::Timer { step: "nap".to_owned() };
    let wakes_seen = stage.run(first).await.wakes;
    let park = End::Parked { wake_at: Some(stage.in_ms(10)), waits_for, wakes_seen };
    stage.settle(lease, park).await.unwrap();
    let lease = worker.take(second).await;
    stage.pass(10);
    complete(stage, lease).await;
    let lease = worker.take(first).await;
    complete(stage, lease).await;
    worker.take(third).await;
}

/// Runs without a lane are not limited by the lane's limit, and take turns with lanes.
pub async fn runs_without_a_lane_are_not_in_one(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, per_lane(1)).await;
    let none = start_many(stage, 3).await;
    let (one, _) = (stage.start(in_lane("a")).await, stage.start(in_lane("a")).await);
    assert_eq!(ids(&worker.claim(1).await), [none[0]]);
    assert_eq!(ids(&worker.claim(1).await), [one]);
    assert_eq!(ids(&worker.claim(10).await), none[1..]);
}

/// However many runs of a full lane stand before them, and of whatever priority, runs without a lane
/// are claimed: the higher priority first, then who is longest due.
pub async fn runs_without_a_lane_are_found_behind_a_full_one(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, per_lane(1)).await;
    let full = stage.start(in_lane("acme")).await;
    worker.take(full).await;
    let ahead = (0..300).map(|_| NewRun { priority: 5, ..in_lane("acme") }).collect();
    stage.store.start(ahead).await.unwrap();
    stage.pass(1);
    let none = start_many(stage, 2).await;
    let urgent = stage.start(NewRun { priority: 1, ..new_run() }).await;
    let claims = worker.claim(1).await;
    assert_eq!((ids(&claims), claims.more), (vec![urgent], true));
    let claims = worker.claim(10).await;
    assert_eq!((ids(&claims), claims.more), (none, false));
}

/// A suspect is held to the limits of its queue and its lane as any run is.
pub async fn suspect_is_held_to_the_limits(stage: &Stage) {
    let run = stage.start(in_lane("acme")).await;
    let live = stage.worker().await;
    for _ in 0..SUSPECT_CRASHES {
        let dead = stage.worker().await;
        stage.pass(60_000);
        live.renew().await.unwrap();
        dead.renew().await.unwrap();
        dead.take(run).await;
        stage.lose(&dead, &live).await;
    }
    stage.pass(60_000);
    live.renew().await.unwrap();
    limit(stage, per_lane(1)).await;
    let holder = stage.start(in_lane("acme")).await;
    let claims = live.claim(1).await;
    assert_eq!((ids(&claims), claims.suspect), (vec![holder], false));
    assert!(live.claim_suspect().await.runs.is_empty());
    complete(stage, claims.runs[0].lease).await;
    assert!(live.claim(0).await.suspect);
    assert_eq!(ids(&live.claim_suspect().await), [run]);
    assert_eq!(stage.state(run).await, RunState::Running);
}

/// A run that is kept off some build is claimed by another within the limit of its lane.
pub async fn run_kept_off_a_build_is_held_to_its_lane(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker_of("build-2").await);
    limit(stage, per_lane(1)).await;
    let run = stage.start(in_lane("acme")).await;
    let lease = old.take(run).await;
    let (code, detail) = (Code::HistoryMismatch, "why".to_owned());
    let wakes_seen = stage.run(run).await.wakes;
    stage.settle(lease, End::Stuck { code, detail, wakes_seen }).await.unwrap();
    let holder = stage.start(in_lane("acme")).await;
    let lease = old.take(holder).await;
    new.sweep().await;
    assert_eq!(stage.state(run).await, RunState::Queued, "another build may mend it");
    assert!(new.claim(10).await.runs.is_empty(), "its lane is full");
    complete(stage, lease).await;
    assert!(old.claim(10).await.runs.is_empty());
    new.take(run).await;
}

/// A lane behind more full lanes than one claim looks at gets its turn in the next.
pub async fn lane_past_the_bound_gets_its_turn(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, per_lane(1)).await;
    let lanes = LANES_LOOK_MAX + 1;
    for batch in 0..2 {
        let mut runs: Vec<_> = (0..lanes).map(|lane| in_lane(&format!("a{lane:05}"))).collect();
        while !runs.is_empty() {
            let rest = runs.split_off(runs.len().min(500));
            stage.store.start(std::mem::replace(&mut runs, rest)).await.unwrap();
        }
        let mut taken = 0;
        while batch == 0 && taken < lanes {
            let claims = worker.claim(CLAIM_BATCH_MAX).await;
            assert!(!claims.runs.is_empty(), "{taken} of {lanes} lanes have had their turn");
            taken += claims.runs.len();
        }
    }
    let behind = stage.start(in_lane(&format!("a{:05}x", LANES_LOOK_MAX - 1))).await;
    let claims = worker.claim(1).await;
    assert!(claims.runs.is_empty(), "it looked at others");
    assert!(claims.more || claims.next_due.is_some(), "and says that it did not see all");
    assert_eq!(ids(&worker.claim(1).await), [behind]);
}
