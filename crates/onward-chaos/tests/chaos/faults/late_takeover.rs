//! A takeover whose sweeper does not hear that it swept.

use std::time::{Duration, Instant};

use onward_chaos::proxy::Cut;

use super::stage::{LEASE_SHORT, Plan, Stage, in_time, until};

/// What a takeover may take when the sweep is committed: a moment on a busy machine.
const TAKEOVER_TIME: Duration = Duration::from_secs(3);

const LOST: &str = "select from onward.workers where lost_at is not null";

#[tokio::test]
async fn runs_that_were_swept_are_claimed_though_the_answer_is_lost() {
    let stage = Stage::shared().await;
    let _gone = stage.worker(LEASE_SHORT).await;
    let run = stage.start("order-7", &Plan::of_steps(1)).await;
    stage.bodies_began(1).await;
    let (proxy, onward) = stage.another_way().await;
    let _sweeper = stage.worker_of(&onward, LEASE_SHORT).await;
    stage.proxy.black_hole();
    while stage.query(LOST).await == 0 {
        let sweep = |sql: &str| sql.contains("onward.sweep(");
        let sprung = proxy.swallow_commit(0, Cut::Reset, sweep);
        in_time("a sweep's answer is lost", sprung).await.unwrap();
    }
    let swept = Instant::now();
    until("the run is claimed again", async || run.status().await.unwrap().attempt > 1).await;
    assert!(swept.elapsed() < TAKEOVER_TIME, "claimed only after {:?}", swept.elapsed());
}
