//! Queues that somebody holds or changes while runs are claimed from them and from others.

use std::time::{Duration, Instant};

use onward::store::*;
use onward::{Ctx, Onward, QueueLimits, Rate, RunId, Workflow};

use super::stage::*;

const LIMITED: &str = "limited";
const WORK: Workflow<(), ()> = Workflow::named(WORKFLOW);

async fn put(store: &PostgresStore, limits: QueueLimits) {
    let put = PutQueue { name: LIMITED.to_owned(), limits };
    store.queues().unwrap().put_queue(put).await.unwrap();
}

fn claim_from_both(worker: onward::WorkerId, ticket: i64) -> Claim {
    let queues = vec!["default".to_owned(), LIMITED.to_owned()];
    Claim { queues, ..claim_of(worker, ticket) }
}

fn taken(claims: &Claims) -> Vec<RunId> {
    claims.runs.iter().map(|claimed| claimed.lease.run).collect()
}

async fn started_in(store: &PostgresStore, queue: &str) -> RunId {
    start(store, NewRun { queue: queue.to_owned(), ..new_run() }).await
}

/// Fails where a claim waits for the row of a limited queue: it took nothing of the others, and failed when it
/// had waited for too long.
#[tokio::test]
async fn a_queue_that_somebody_holds_is_left_out_and_holds_up_no_other() {
    let stage = Stage::new();
    let store = stage.open().await;
    put(&store, QueueLimits { concurrency: Some(2), ..QueueLimits::default() }).await;
    let worker = joined(&store).await;
    let (free, held) = (started(&store).await, started_in(&store, LIMITED).await);
    let raw = stage.raw().await;
    raw.batch_execute("begin; select from queues for update").await.unwrap();
    let claims = soon(store.claim(claim_from_both(worker, 1))).await.unwrap();
    assert_eq!((taken(&claims), claims.more), (vec![free], false));
    let look_at = claims.next_due.expect("it is looked at again");
    assert!(look_at.since(store.clock().now()).as_secs() < 1);
    let_go(&raw).await;
    assert_eq!(taken(&store.claim(claim_from_both(worker, 2)).await.unwrap()), [held]);
}

/// Fails where a claim that saw no limits takes runs after the pause was answered: the queue had no row yet
/// that both could have locked.
/// Fails where a start that claims its run at once begins it after the pause was answered.
#[tokio::test]
async fn a_first_pause_waits_for_the_starts_that_did_not_see_it() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let raw = stage.raw().await;
    raw.batch_execute("begin; lock table runs in share mode").await.unwrap();
    let claimant = Some(Claimant { worker, build: "b1".to_owned() });
    let starting = store.start(vec![NewRun { queue: LIMITED.to_owned(), claimant, ..new_run() }]);
    stage.waiting(1).await;
    let pause = store.queues().unwrap().pause_queue(LIMITED.to_owned());
    stage.waiting(2).await;
    let_go(&raw).await;
    let started = soon(starting).await.unwrap().remove(0).unwrap();
    assert_eq!(started.how, StartedHow::Claimed);
    assert!(soon(pause).await.unwrap().paused_at.is_some());
}

#[tokio::test]
async fn a_first_pause_waits_for_the_claims_that_did_not_see_it() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let (first, next) = (started_in(&store, LIMITED).await, started_in(&store, LIMITED).await);
    let raw = stage.raw().await;
    raw.batch_execute("begin; lock table inputs in access exclusive mode").await.unwrap();
    let one = Claim { limit: 1, ..claim_from_both(worker, 1) };
    let claim = store.claim(one);
    stage.waiting(1).await;
    let pause = store.queues().unwrap().pause_queue(LIMITED.to_owned());
    stage.waiting(2).await;
    let later = store.claim(claim_from_both(joined(&store).await, 1));
    stage.waiting(3).await;
    let_go(&raw).await;
    assert_eq!(taken(&soon(claim).await.unwrap()), [first]);
    assert!(soon(pause).await.unwrap().paused_at.is_some());
    assert_eq!(taken(&soon(later).await.unwrap()), []);
    store.queues().unwrap().resume_queue(LIMITED.to_owned()).await.unwrap();
    assert_eq!(taken(&store.claim(claim_from_both(worker, 2)).await.unwrap()), [next]);
}

/// Fails where a run is said to have begun before its claim waited: there were more within a period than the
/// rate allows.
#[tokio::test]
async fn what_a_rate_grants_began_when_it_was_granted() {
    let stage = Stage::new();
    let store = stage.open().await;
    let rate = Some(Rate { count: 1, period_ms: 60_000 });
    put(&store, QueueLimits { rate, ..QueueLimits::default() }).await;
    let worker = joined(&store).await;
    let run = started_in(&store, LIMITED).await;
    let raw = stage.raw().await;
    let hold = format!(
        "begin; select pg_advisory_xact_lock(hashtextextended('{}.queues', 7777))",
        stage.name()
    );
    raw.batch_execute(&hold).await.unwrap();
    let claim = store.claim(claim_from_both(worker, 1));
    stage.waiting(1).await;
    let now = "select ceil(extract(epoch from clock_timestamp()) * 1000)::bigint, pg_sleep(0.002)";
    let waited: i64 = raw.query_one(now, &[]).await.unwrap().get(0);
    let_go(&raw).await;
    assert_eq!(taken(&soon(claim).await.unwrap()), [run]);
    let at: i64 = raw.query_one("select at from grants", &[]).await.unwrap().get(0);
    let began = store.get(Which::Id(run)).await.unwrap().unwrap().started_at.unwrap();
    assert!(at >= waited);
    assert_eq!(began.as_millis(), at);
}

/// The transactions of a database that were committed, with those of connections that have ended.
async fn commits(stage: &Stage) -> i64 {
    let raw = stage.raw().await;
    let alive = "select count(*) from pg_stat_activity where application_name = $1";
    until("the stores are closed", async || {
        raw.query_one(alive, &[&stage.name()]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    counts_told(&raw).await;
    let sql = "select xact_commit from pg_stat_database where datname = current_database()";
    raw.query_one(sql, &[]).await.unwrap().get(0)
}

/// Fails where a worker claims again at once for as long as a queued run is there that it does not get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_not_spin_while_somebody_holds_a_queued_run() {
    let stage = Stage::apart().await;
    let store = stage.open().await;
    started(&store).await;
    drop(store);
    let (before, begun) = (commits(&stage).await, Instant::now());
    let raw = stage.raw().await;
    raw.batch_execute("begin; select from runs for update").await.unwrap();
    let onward = Onward::open(&stage.url()).await.unwrap();
    let worker = onward.worker().serve(WORK, async |_: Ctx, ()| Ok(())).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    worker.shutdown().await.unwrap();
    drop(onward);
    let made = commits(&stage).await - before;
    let seconds = begun.elapsed().as_secs_f64();
    let_go(&raw).await;
    // Without a pause it was 740 in each. What counts them here makes some itself.
    assert!(made as f64 <= 200.0 * seconds, "{made} transactions in {seconds:.1} seconds");
}
