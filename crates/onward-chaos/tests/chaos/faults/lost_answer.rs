//! The connection is cut between a commit and its answer: at every kind of write.
//!
//! The write is there and nobody was told. Whoever made it makes it again and is told so, never
//! that it is in conflict with itself; a worker keeps its runs, and no body executes again.

use onward::{Code, Onward, RunState};
use onward_chaos::proxy::{Cut, Sprung};

use super::stage::{ANSWER_TIME, LEASE_LONG, PLAN, Plan, Stage, in_time, until, within};

/// What the statements of each kind of write have, and no other's.
const START: &str = "onward.start_runs(";
const CLAIM: &str = "onward.claim(";
const SETTLE: &str = "onward.settle(";
/// A lone record has a statement of its own.
const RECORD: &str = "onward.record(";
const RENEW: &str = "set lease_until";
const CANCEL: &str = "update onward.runs";

/// Loses the answer to the next commit of this kind.
fn lose(stage: &Stage, kind: &'static str) -> Sprung {
    stage.proxy.swallow_commit(0, Cut::Reset, move |sql| sql.contains(kind))
}

async fn start_until_answered(onward: &Onward, key: &str, plan: &Plan) -> onward::RunHandle<u32> {
    loop {
        match within(ANSWER_TIME, "start answers", onward.start(PLAN, plan).key(key)).await {
            Ok(run) => return run,
            Err(error) => assert_eq!(error.code(), Code::StoreUnavailable, "{error}"),
        }
    }
}

#[tokio::test]
async fn start_whose_answer_is_lost_is_repeated_as_one_run() {
    let stage = Stage::shared().await;
    let sprung = lose(&stage, START);
    let run = start_until_answered(&stage.onward, "order-7", &Plan::of_steps(1)).await;
    in_time("the answer was lost", sprung).await.unwrap();
    assert_eq!(stage.straight.by_key(PLAN, "order-7").await.unwrap().id(), run.id());
    assert_eq!(stage.assert_nothing_broken().await.len(), 1);
}

#[tokio::test]
async fn start_that_claims_and_whose_answer_is_lost_is_executed_once() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG).await;
    stage.open(u32::MAX);
    let sprung = lose(&stage, START);
    let run = start_until_answered(&stage.onward, "order-7", &Plan::of_steps(2)).await;
    in_time("the answer was lost", sprung).await.unwrap();
    assert_eq!(in_time("the run ends", run.result()).await.unwrap(), 1);
    stage.assert_bodies_began_once();
    assert_eq!(stage.assert_nothing_broken().await.len(), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn claim_whose_answer_is_lost_keeps_its_runs() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG).await;
    stage.open(u32::MAX);
    let sprung = lose(&stage, CLAIM);
    let run = stage.start("order-7", &Plan::of_steps(1)).await;
    in_time("the answer was lost", sprung).await.unwrap();
    in_time("the run ends", run.result()).await.unwrap();
    let runs = stage.assert_nothing_broken().await;
    assert_eq!(runs[0].0.attempt, 1, "the claim was repeated, not made anew");
    stage.assert_bodies_began_once();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn record_whose_answer_is_lost_is_recorded_once() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG).await;
    let run = stage.start("order-7", &Plan::of_steps(2)).await;
    stage.bodies_began(1).await;
    let sprung = lose(&stage, RECORD);
    stage.open(1);
    let lost = in_time("the answer was lost", sprung).await.unwrap();
    stage.bodies_began(2).await;
    stage.open(u32::MAX);
    assert_eq!(in_time("the run ends", run.result()).await.unwrap(), 1, "{lost}");
    let runs = stage.assert_nothing_broken().await;
    assert_eq!((runs[0].0.attempt, runs[0].1.len()), (1, 2));
    stage.assert_bodies_began_once();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn settle_whose_answer_is_lost_ends_the_run_once() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG).await;
    let run = stage.start("order-7", &Plan::of_steps(1)).await;
    stage.bodies_began(1).await;
    let sprung = lose(&stage, SETTLE);
    stage.open(u32::MAX);
    in_time("the answer was lost", sprung).await.unwrap();
    let ended = in_time("the run ends", run.ended()).await.unwrap();
    assert_eq!((ended.state, ended.attempt), (RunState::Completed, 1));
    stage.assert_nothing_broken().await;
    stage.assert_bodies_began_once();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn park_whose_answer_is_lost_parks_the_run_and_it_wakes() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG).await;
    let nap = Plan { nap_ms: 300, ..Plan::of_steps(1) };
    let run = stage.start("order-7", &nap).await;
    stage.bodies_began(1).await;
    // The step's record and the park are one commit or two.
    let sprung = stage.proxy.swallow_commit(0, Cut::Reset, |sql| sql.contains(SETTLE));
    stage.open(u32::MAX);
    in_time("the answer was lost", sprung).await.unwrap();
    let sprung = stage.proxy.swallow_commit(0, Cut::Finish, |sql| sql.contains(SETTLE));
    in_time("the answer was lost", sprung).await.unwrap();
    in_time("the run ends", run.result()).await.unwrap();
    stage.assert_nothing_broken().await;
    stage.assert_bodies_began_once();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn renewal_whose_answer_is_lost_keeps_the_lease() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG / 4).await;
    let run = stage.start("order-7", &Plan::of_steps(1)).await;
    stage.bodies_began(1).await;
    for _ in 0..2 {
        let sprung = lose(&stage, RENEW);
        in_time("the answer was lost", sprung).await.unwrap();
    }
    stage.open(u32::MAX);
    in_time("the run ends", run.result()).await.unwrap();
    let runs = stage.assert_nothing_broken().await;
    assert_eq!(runs[0].0.attempt, 1);
    stage.assert_bodies_began_once();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn cancel_whose_answer_is_lost_can_be_repeated() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG).await;
    let held = stage.start("held", &Plan::of_steps(1)).await;
    stage.bodies_began(1).await;
    for run in
        [held, stage.straight.start(PLAN, &Plan::of_steps(1)).delay(LEASE_LONG).await.unwrap()]
    {
        let sprung = lose(&stage, CANCEL);
        let through = stage.onward.run(run.id());
        while let Err(error) = within(ANSWER_TIME, "cancel answers", through.cancel()).await {
            assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
        }
        in_time("the answer was lost", sprung).await.unwrap();
        let ended = in_time("the run ends", run.ended()).await.unwrap();
        assert_eq!(ended.state, RunState::Cancelled);
    }
    stage.assert_nothing_broken().await;
    worker.shutdown().await.unwrap();
}

/// One after the other, every answer that a client or its worker gets from its start to its end.
#[tokio::test]
async fn any_answer_may_be_lost_and_the_run_goes_on() {
    const ANSWERS: u32 = 24;
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_LONG).await;
    stage.open(u32::MAX);
    let plan = Plan { steps: 3, nap_ms: 40, failures: 1 };
    for answer in 0..ANSWERS {
        let cut = if answer % 2 == 0 { Cut::Reset } else { Cut::Finish };
        let sprung = stage.proxy.swallow_commit(answer, cut, |_| true);
        let key = format!("order-{answer}");
        let run = start_until_answered(&stage.onward, &key, &plan).await;
        until("the run ends", async || match run.result().await {
            Ok(sum) => sum == 3,
            Err(error) if error.code() == Code::StoreUnavailable => false,
            Err(error) => panic!("answer {answer}: {error}"),
        })
        .await;
        drop(sprung);
    }
    let runs = stage.assert_nothing_broken().await;
    assert_eq!(runs.len(), usize::try_from(ANSWERS).unwrap());
    assert!(runs.iter().all(|(run, _)| run.state == RunState::Completed));
    stage.assert_bodies_began_once();
    assert!(stage.proxy.counts().swallowed >= u64::from(ANSWERS) / 2, "{:?}", stage.proxy.counts());
    worker.shutdown().await.unwrap();
}
