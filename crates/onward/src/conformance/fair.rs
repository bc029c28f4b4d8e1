//! Fairness among lanes: whoever has many runs waiting holds up nobody who has few.

use super::queues::{limit, queues};
use super::stage::*;
use crate::store::{Claim, Claimed, End, NewRun, PutQueue};
use crate::{QueueLimits, RunId};

/// A second queue, which the claims of these cases serve too.
const SECOND: &str = "second";

/// What stands beside the queue with the lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    Nothing,
    OpenQueue,
    LimitedQueue,
    RunsWithoutLane,
}

fn in_lane(lane: &str) -> NewRun {
    NewRun { lane: Some(lane.to_owned()), ..new_run() }
}

fn in_second() -> NewRun {
    NewRun { queue: SECOND.to_owned(), ..new_run() }
}

fn per_lane(runs: u32) -> QueueLimits {
    QueueLimits { per_lane: Some(runs), ..QueueLimits::default() }
}

/// Heavy lanes with many runs each, what stands beside them, and then one run of a light lane.
async fn backlog(stage: &Stage, beside: Beside, heavy: usize) -> RunId {
    for number in 0..4 * heavy {
        stage.start(in_lane(&format!("heavy {}", number % heavy))).await;
        stage.pass(1);
        match beside {
            Beside::Nothing => {}
            Beside::OpenQueue | Beside::LimitedQueue => drop(stage.start(in_second()).await),
            Beside::RunsWithoutLane => drop(stage.start(new_run()).await),
        }
        stage.pass(1);
    }
    stage.start(NewRun { priority: -1, ..in_lane("light") }).await
}

async fn claim_both(stage: &Stage, worker: &Worker, limit: usize) -> Vec<Claimed> {
    let queues = vec![QUEUE.to_owned(), SECOND.to_owned()];
    stage.store.claim(Claim { queues, ..worker.next_claim(limit) }).await.unwrap().runs
}

async fn complete(stage: &Stage, runs: Vec<Claimed>) {
    for claimed in runs {
        stage.settle(claimed.lease, End::Completed(json(1))).await.unwrap();
    }
}

/// Claims until the light lane's run is given out; says how many runs of the queue with the lanes were before it.
async fn waited(stage: &Stage, worker: &Worker, light: RunId, limit: usize) -> usize {
    let mut before = 0;
    loop {
        let runs = claim_both(stage, worker, limit).await;
        assert!(!runs.is_empty(), "nothing is left, and the light lane has had no turn");
        let place = runs.iter().position(|claimed| claimed.run.id == light);
        let first = runs.iter().take(place.unwrap_or(runs.len()));
        before += first.filter(|claimed| claimed.run.queue == QUEUE).count();
        complete(stage, runs).await;
        if place.is_some() {
            return before;
        }
    }
}

async fn light_lane_waits_one_turn(stage: &Stage, beside: Beside) {
    let worker = stage.worker().await;
    if beside == Beside::LimitedQueue {
        let limits = QueueLimits { concurrency: Some(50), ..QueueLimits::default() };
        let put = PutQueue { name: SECOND.to_owned(), limits };
        queues(stage).put_queue(put).await.unwrap();
    }
    for (heavy, per_lane_max, claim_limit) in [(1, 1, 4), (3, 100, 1), (3, 2, 4), (2, 100, 20)] {
        limit(stage, per_lane(per_lane_max)).await;
        let light = backlog(stage, beside, heavy).await;
        let before = waited(stage, &worker, light, claim_limit).await;
        // One turn of each heavy lane, and one of the runs without a lane.
        let turns = heavy + usize::from(beside == Beside::RunsWithoutLane);
        let scene = format!("{heavy} lanes of {per_lane_max}, {claim_limit} a claim");
        assert!(before <= turns, "{scene}: {before} runs were first, with {turns} turns");
        // The next scene begins with nothing queued.
        loop {
            let rest = claim_both(stage, &worker, 100).await;
            if rest.is_empty() {
                break;
            }
            complete(stage, rest).await;
        }
    }
}

/// The only run of a light lane waits for one turn of each heavy lane, however long those are and whatever its
/// priority.
pub async fn light_lane_waits_one_turn_at_most(stage: &Stage) {
    light_lane_waits_one_turn(stage, Beside::Nothing).await;
}

/// So it is if the same claims serve a second queue with runs as old as those of the heavy lanes.
pub async fn light_lane_waits_one_turn_beside_a_second_queue(stage: &Stage) {
    light_lane_waits_one_turn(stage, Beside::OpenQueue).await;
}

/// And if that queue has limits too.
pub async fn light_lane_waits_one_turn_beside_a_second_limited_queue(stage: &Stage) {
    light_lane_waits_one_turn(stage, Beside::LimitedQueue).await;
}

/// Runs without a lane have a turn as one lane has.
pub async fn light_lane_waits_one_turn_beside_runs_without_a_lane(stage: &Stage) {
    light_lane_waits_one_turn(stage, Beside::RunsWithoutLane).await;
}
