//! Transactional steps over a bad connection: what a body wrote is there once, or not yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, Retry, RunState, Worker, Workflow};
use onward_chaos::proxy::{Cut, Proxy};

use super::stage::{LEASE_LONG, LEASE_SHORT, Stage, in_time, until};

/// Writes a line in a transaction.
const APPLY: Workflow<(), u32> = Workflow::named("apply");

const APPLIED: &str = "select from applied";

/// What the statements of a transactional step's commit have, and no other's.
const TRANSACT: &str = "onward.transact(";

/// What happens to the connection while the body executes.
type Mishap = fn(&Proxy);

/// A worker whose body writes a line, suffers its mishap the first time, and reads its line again.
async fn worker(stage: &Stage, onward: &Onward, lease: Duration, mishap: Mishap) -> Worker {
    stage.execute("create table if not exists applied (step_id text)").await;
    let (proxy, executed) = (Arc::clone(&stage.proxy), Arc::new(AtomicU32::new(0)));
    let serving = onward.worker().serve(APPLY, move |ctx: Ctx, ()| {
        let (proxy, executed) = (Arc::clone(&proxy), Arc::clone(&executed));
        async move {
            let applied = ctx.postgres_transaction("apply", move |db, step| {
                let (proxy, executed) = (Arc::clone(&proxy), Arc::clone(&executed));
                async move {
                    let add = "insert into applied values ($1)";
                    db.execute(add, &[&step.id()]).await?;
                    let before = executed.fetch_add(1, Ordering::SeqCst);
                    if before == 0 {
                        mishap(&proxy);
                    }
                    let read = "select 1 from applied where step_id = $1";
                    db.query_one(read, &[&step.id()]).await?;
                    Ok::<_, Failure>(before + 1)
                }
            });
            applied.retry(Retry::fixed(Duration::from_millis(50)).tries(100)).await
        }
    });
    serving.lease(lease).start().await.unwrap()
}

#[tokio::test]
async fn transaction_whose_answer_is_lost_is_applied_once() {
    let stage = Stage::shared().await;
    let worker = worker(&stage, &stage.onward, LEASE_LONG, |_| {}).await;
    for (number, cut) in [Cut::Reset, Cut::Finish].into_iter().enumerate() {
        let sprung = stage.proxy.swallow_commit(0, cut, |sql| sql.contains(TRANSACT));
        let key = format!("order-{number}");
        let run = stage.straight.start(APPLY, &()).key(key).await.unwrap();
        in_time("the answer was lost", sprung).await.unwrap();
        in_time("the run ends", run.result()).await.unwrap();
        assert_eq!(stage.query(APPLIED).await, number + 1);
    }
    let runs = stage.assert_nothing_broken().await;
    assert!(runs.iter().all(|(run, history)| run.attempt == 1 && history.len() == 1), "{runs:?}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn transaction_that_is_cut_inside_is_undone_and_executed_again() {
    let mishaps: [Mishap; 2] = [|proxy| proxy.cut(Cut::Reset), |proxy| proxy.cut(Cut::Finish)];
    for mishap in mishaps {
        let stage = Stage::shared().await;
        let worker = worker(&stage, &stage.onward, LEASE_LONG, mishap).await;
        let run = stage.straight.start(APPLY, &()).key("order-7").await.unwrap();
        let executed = in_time("the run ends", run.result()).await.unwrap();
        assert!(executed > 1, "the first execution was cut off");
        assert_eq!(stage.query(APPLIED).await, 1);
        let runs = stage.assert_nothing_broken().await;
        assert_eq!(runs[0].0.attempt, 1, "its worker kept the run");
        worker.shutdown().await.unwrap();
    }
}

/// The worker is cut off inside its transaction for so long that another takes the run over.
#[tokio::test]
async fn transaction_of_a_worker_that_lost_its_lease_is_not_applied() {
    let stage = Stage::shared().await;
    let cut_off = worker(&stage, &stage.onward, LEASE_SHORT, Proxy::black_hole).await;
    let run = stage.straight.start(APPLY, &()).key("order-7").await.unwrap();
    // Executed by the other at once, it would be the next one in which the first is cut off, for ever.
    let claimed = async || run.status().await.unwrap().state == RunState::Running;
    until("the first has the run", claimed).await;
    let other = worker(&stage, &stage.straight, LEASE_SHORT, |_| {}).await;
    in_time("another takes over", run.result()).await.unwrap();
    stage.proxy.pass();
    assert_eq!(stage.query(APPLIED).await, 1);
    in_time("the other ends", other.shutdown()).await.unwrap();
    let next = stage.straight.start(APPLY, &()).key("order-8").await.unwrap();
    in_time("the one that was cut off serves again", next.result()).await.unwrap();
    assert_eq!(stage.query(APPLIED).await, 2);
    stage.assert_nothing_broken().await;
    in_time("it ends", cut_off.shutdown()).await.unwrap();
}
