//! The server is away: restarted, killed, refusing connections, or silent.

use std::time::{Duration, Instant};

use onward::{Code, Onward, RunHandle, RunState};
use onward_chaos::server::{self, Server};

use super::stage::{
    ANSWER_TIME, LEASE_LONG, LEASE_SHORT, PLAN, Plan, Stage, in_time, until, within,
};

/// Runs that are under way when the server goes.
const RUNS: u32 = 10;

async fn start_runs(stage: &Stage, plan: &Plan) -> Vec<RunHandle<u32>> {
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(stage.start(&format!("order-{number}"), plan).await);
    }
    stage.bodies_began(RUNS).await;
    runs
}

/// Waits for the ends, through outages.
async fn all_complete(runs: &[RunHandle<u32>]) {
    for run in runs {
        until("the run ends", async || match run.status().await {
            Ok(run) => run.state == RunState::Completed,
            Err(error) => {
                assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
                false
            }
        })
        .await;
    }
}

async fn survives(end: fn(&mut Server) -> std::io::Result<()>) {
    server::shared_url().unwrap();
    let mut server = Server::start().unwrap();
    let stage = Stage::own(&server).await;
    let worker = stage.worker(LEASE_LONG).await;
    let runs = start_runs(&stage, &Plan { nap_ms: 50, ..Plan::of_steps(3) }).await;
    end(&mut server).unwrap();
    // The bodies end while there is nowhere to record it.
    stage.open(u32::MAX);
    let error = within(ANSWER_TIME, "start answers", stage.onward.start(PLAN, &Plan::of_steps(1)));
    assert_eq!(error.await.unwrap_err().code(), Code::StoreUnavailable);
    server.start_again().unwrap();
    all_complete(&runs).await;
    let runs = stage.assert_nothing_broken().await;
    assert_eq!(runs.len(), usize::try_from(RUNS).unwrap());
    stage.assert_bodies_began_once();
    in_time("the worker ends", worker.shutdown()).await.unwrap();
}

#[tokio::test]
async fn workers_keep_their_runs_when_the_server_is_restarted() {
    survives(Server::stop).await;
}

#[tokio::test]
async fn workers_keep_their_runs_when_the_server_is_killed() {
    survives(Server::kill).await;
}

#[tokio::test]
async fn workers_go_on_by_themselves_after_an_outage_longer_than_their_lease() {
    let stage = Stage::shared().await;
    let workers = [stage.worker(LEASE_SHORT).await, stage.worker(LEASE_SHORT).await];
    let runs = start_runs(&stage, &Plan { nap_ms: 50, ..Plan::of_steps(3) }).await;
    stage.proxy.refuse();
    stage.open(1);
    tokio::time::sleep(outage_time()).await;
    stage.proxy.pass();
    stage.open(u32::MAX);
    all_complete(&runs).await;
    stage.assert_nothing_broken().await;
    for worker in workers {
        in_time("a worker ends", worker.shutdown()).await.unwrap();
    }
}

/// Long enough that every lease is over many times, and every pause between two tries to connect is
/// at its longest.
const OUTAGE_TIME: Duration = Duration::from_secs(15);

/// How long the server is away; `ONWARD_OUTAGE_SECONDS` says otherwise.
fn outage_time() -> Duration {
    let given = std::env::var("ONWARD_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok());
    given.map_or(OUTAGE_TIME, Duration::from_secs)
}

/// While one worker is cut off from the server, another is not.
#[tokio::test]
async fn runs_of_a_worker_that_is_cut_off_go_on_elsewhere_and_it_joins_again() {
    let stage = Stage::shared().await;
    let cut_off = stage.worker(LEASE_SHORT).await;
    let runs = start_runs(&stage, &Plan::of_steps(2)).await;
    let other = stage.worker_of(&stage.straight, LEASE_SHORT).await;
    stage.proxy.black_hole();
    stage.bodies_began(2 * RUNS).await;
    // Both are in the same step now; the one that is cut off does not know yet that it lost.
    stage.open(u32::MAX);
    all_complete(&runs).await;
    stage.proxy.pass();
    let ended = stage.assert_nothing_broken().await;
    assert!(ended.iter().all(|(run, _)| run.attempt == 2), "all went on elsewhere");
    in_time("the other ends", other.shutdown()).await.unwrap();

    let next = stage.start("next", &Plan::of_steps(1)).await;
    in_time("the one that was cut off serves again", next.result()).await.unwrap();
    stage.assert_nothing_broken().await;
    in_time("it ends", cut_off.shutdown()).await.unwrap();
}

#[tokio::test]
async fn start_during_an_outage_fails_in_time_and_its_repeat_is_one_run() {
    let stage = Stage::shared().await;
    let takes_away: [fn(&Stage); 2] =
        [|stage| stage.proxy.refuse(), |stage| stage.proxy.black_hole()];
    for (number, take_away) in takes_away.into_iter().enumerate() {
        take_away(&stage);
        let key = format!("order-{number}");
        let plan = Plan::of_steps(1);
        for _ in 0..2 {
            let start = stage.onward.start(PLAN, &plan).key(key.as_str());
            let error = within(ANSWER_TIME, "start answers", start).await.unwrap_err();
            assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
            assert!(error.is_retryable());
        }
        stage.proxy.pass();
        let run = start_again(&stage.onward, &key, &plan).await;
        assert_eq!(stage.straight.by_key(PLAN, key.as_str()).await.unwrap().id(), run.id());
        let runs = stage.assert_nothing_broken().await;
        assert_eq!(runs.len(), number + 1, "one run for each key");
    }
}

async fn start_again(onward: &Onward, key: &str, plan: &Plan) -> RunHandle<u32> {
    let begun = Instant::now();
    loop {
        match onward.start(PLAN, plan).key(key).await {
            Ok(run) => return run,
            Err(error) => assert!(begun.elapsed() < ANSWER_TIME, "it does not come back: {error}"),
        }
    }
}

#[tokio::test]
async fn black_hole_leaves_no_caller_without_an_answer() {
    let stage = Stage::shared().await;
    let run = stage.start("order-7", &Plan::of_steps(1)).await;
    let through = stage.onward.run(run.id());
    stage.proxy.black_hole();
    let unavailable = |what: &str, error: onward::Error| {
        assert_eq!(error.code(), Code::StoreUnavailable, "{what}: {error}");
    };
    let status = within(ANSWER_TIME, "status answers", through.status()).await;
    unavailable("status", status.unwrap_err());
    let history = within(ANSWER_TIME, "history answers", through.history()).await;
    unavailable("history", history.unwrap_err());
    let cancel = within(ANSWER_TIME, "cancel answers", through.cancel()).await;
    unavailable("cancel", cancel.unwrap_err());
    let stats = within(ANSWER_TIME, "stats answers", stage.onward.stats()).await;
    unavailable("stats", stats.unwrap_err());
    let opened = Onward::open(&stage.through()).await;
    unavailable("open", opened.unwrap_err());
    stage.proxy.pass();
    until("the store answers again", async || through.status().await.is_ok()).await;
    stage.assert_nothing_broken().await;
}

#[tokio::test]
async fn worker_in_a_black_hole_shuts_down_in_time() {
    let stage = Stage::shared().await;
    let worker = stage.worker(LEASE_SHORT).await;
    start_runs(&stage, &Plan::of_steps(2)).await;
    stage.proxy.black_hole();
    stage.open(u32::MAX);
    // It may say that it could not give its runs back, but it must not wait for ever.
    let _ = within(ANSWER_TIME * 4, "the worker ends", worker.shutdown()).await;
    stage.proxy.pass();
    let other = stage.worker_of(&stage.straight, LEASE_SHORT).await;
    for number in 0..RUNS {
        let run = stage.straight.by_key(PLAN, format!("order-{number}")).await.unwrap();
        in_time("another takes over", run.result()).await.unwrap();
    }
    stage.assert_nothing_broken().await;
    other.shutdown().await.unwrap();
}
