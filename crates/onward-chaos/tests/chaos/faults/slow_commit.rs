//! A commit that takes longer in the database than its worker's lease.
//!
//! This is what the fence is for: the server has looked at the lease and goes on to write, its
//! worker is gone, and another wants the run. Whoever takes over waits for the write.

use onward::RunState;
use onward_chaos::audit::{self, Violation};

use super::stage::{LEASE_SHORT, Plan, Stage, in_time, until};

/// Makes the first record of this database take a long time, between its insert, when the lease has
/// been looked at, and its commit. A sequence, since nobody waits for one.
const SLOW: &str = "
create sequence public.slow;
create function public.slow() returns trigger language plpgsql as $$
begin
    if nextval('public.slow') = 1 then
        perform pg_sleep(4);
    end if;
    return null;
end
$$;
create trigger slow after insert on onward.records
for each row execute function public.slow();";

const BEGUN: &str = "select from public.slow where is_called";
const COMMITTED: &str = "select from onward.records where attempt = 1";

/// Lets whoever takes over not wait.
const WITHOUT_FENCE: &str = "
create or replace function onward.fence(workers uuid[]) returns void language sql as $$
    select
$$;
do $$
begin
    execute replace(
        pg_get_functiondef('onward.record'::regproc),
        'pg_advisory_xact_lock_shared(p_fence)',
        'p_fence'
    );
end
$$;";

/// A run whose holder is cut off while its record is on its way to a slow disk, with another worker
/// at hand.
async fn overtaken(stage: &Stage) {
    stage.execute(SLOW).await;
    let _cut_off = stage.worker(LEASE_SHORT).await;
    let run = stage.start("order-7", &Plan::of_steps(2)).await;
    stage.bodies_began(1).await;
    let _other = stage.worker_of(&stage.straight, LEASE_SHORT).await;
    stage.open(1);
    until("the record is on its way", async || stage.query(BEGUN).await > 0).await;
    stage.proxy.black_hole();
    until("another has taken over", async || run.status().await.unwrap().attempt > 1).await;
    stage.open(u32::MAX);
    until("the slow record is committed", async || stage.query(COMMITTED).await > 0).await;
    let quiet = async || {
        let state = run.status().await.unwrap().state;
        state == RunState::Completed || state == RunState::Waiting
    };
    until("the run rests", quiet).await;
}

#[tokio::test]
async fn commit_that_outlasts_its_lease_is_not_overtaken() {
    let stage = Stage::shared().await;
    overtaken(&stage).await;
    let runs = in_time("it is checked", stage.assert_nothing_broken()).await;
    assert_eq!((runs[0].0.state, runs[0].0.attempt), (RunState::Completed, 2));
    let attempts: Vec<u32> = runs[0].1.iter().map(|record| record.attempt).collect();
    assert_eq!(attempts, [1, 2], "whoever took over had the slow record");
    stage.assert_bodies_began_once();
}

/// The look at the lease alone is no fence. This also shows that the audit would find it.
#[tokio::test]
async fn audit_finds_a_takeover_that_does_not_wait() {
    let stage = Stage::shared().await;
    stage.execute(WITHOUT_FENCE).await;
    overtaken(&stage).await;
    let found = audit::check(&stage.changes().await);
    let late = |violation: &Violation| matches!(violation, Violation::LateRecord { .. });
    assert!(found.iter().any(late), "{found:?}");
}
