//! The head of the queue: what was claimed stays in its index until a vacuum, and for as long as
//! somebody holds an old snapshot. So do timers that ended. Claims get past them, and lose nothing that
//! is queued there.
//!
//! The clock is the test's and stands still, so that looks from the head come when the test says so.

use std::time::Duration;

use onward::store::*;
use onward::{RunId, TestClock, Waits, WorkerId};
use tokio_postgres::Client;

use super::stage::*;

/// Runs that were claimed, and as many that were woken.
const PASSED: i64 = 6_000;

/// A queue whose head nothing tidies up.
struct Queue {
    stage: Stage,
    clock: TestClock,
    /// Holds a snapshot for which every passed run is still queued.
    _reader: Client,
}

impl Queue {
    /// With runs that passed, and some that are queued behind them.
    async fn new(queued: i64) -> Self {
        let stage = Stage::apart().await;
        let clock = TestClock::new();
        let store = stage.open_at(&clock).await;
        let raw = stage.raw().await;
        raw.batch_execute("alter table runs set (autovacuum_enabled = off)").await.unwrap();
        let now = clock_ms(&store);
        let sql = format!(
            "insert into runs (id, state, attempt, wakes, crashes, priority, due_at, workflow, queue,
                 created_at, duplicates)
             select lpad(to_hex(i), 32, '0')::uuid, 'queued', 0, 0, 0, 0, {now}, 'index', 'default', i, 0
             from generate_series(1, {PASSED} + {queued}) i;
             insert into runs (id, state, attempt, wakes, crashes, priority, due_at, workflow, queue,
                 created_at, duplicates)
             select md5(i::text)::uuid, 'waiting', 1, 0, 0, 0, i, 'index', 'default', 0, 0
             from generate_series(1, {PASSED}) i;
             insert into inputs select id, '1', null from runs"
        );
        raw.batch_execute(&sql).await.unwrap();
        let reader = stage.raw().await;
        let hold = "begin isolation level repeatable read; select count(*) from runs";
        reader.batch_execute(hold).await.unwrap();
        let sql = format!(
            "update runs set state = 'completed', due_at = null, finished_at = 1
             where created_at <= {PASSED}"
        );
        raw.batch_execute(&sql).await.unwrap();
        Self { stage, clock, _reader: reader }
    }
}

fn clock_ms(store: &PostgresStore) -> i64 {
    store.clock().now().as_millis()
}

/// The run with this number in the queue.
fn numbered(number: i64) -> RunId {
    RunId::from_u128(u128::try_from(number).unwrap())
}

/// Claims one run.
async fn claim_one(store: &PostgresStore, worker: WorkerId, ticket: i64) -> (Lease, Claims) {
    let claim = Claim { limit: 1, ..claim_of(worker, ticket) };
    let claims = store.claim(claim).await.unwrap();
    (claims.runs[0].lease, claims)
}

/// The entries of an index that were read, when no store is open that has not told its own.
async fn entries_read(stage: &Stage, index: &str) -> i64 {
    let raw = stage.raw().await;
    let alive = "select count(*) from pg_stat_activity where application_name = $1";
    until("the stores are closed", async || {
        raw.query_one(alive, &[&stage.name()]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    counts_told(&raw).await;
    let read = "select idx_tup_read from pg_stat_user_indexes
                where schemaname = $1 and indexrelname = $2";
    raw.query_one(read, &[&stage.name(), &index]).await.unwrap().get(0)
}

/// Fails where each claim walks over what passed: that is a hundred times as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_do_not_walk_over_what_passed_while_a_snapshot_is_held() {
    let queue = Queue::new(200).await;
    let before = entries_read(&queue.stage, "runs_queued").await;
    let woken_before = entries_read(&queue.stage, "runs_waiting").await;
    let store = queue.stage.open_at(&queue.clock).await;
    let worker = joined(&store).await;
    for ticket in 1..=100 {
        let (lease, _) = claim_one(&store, worker, ticket).await;
        assert_eq!(lease.run, numbered(PASSED + ticket));
    }
    drop(store);
    let read = entries_read(&queue.stage, "runs_queued").await - before;
    assert!(read >= PASSED, "{read} entries: nothing stood at the head");
    assert!(read < 2 * PASSED, "{read} entries for 100 claims over {PASSED} passed runs");
    // A look from the head looks for what is due, and for what is next.
    let read = entries_read(&queue.stage, "runs_waiting").await - woken_before;
    assert!(
        (PASSED..3 * PASSED).contains(&read),
        "{read} entries for 100 claims over {PASSED} timers"
    );
}

/// Fails where a claim looks behind what was taken and never from the head again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_queued_before_the_floor_is_claimed_within_a_second() {
    let queue = Queue::new(10).await;
    let store = queue.stage.open_at(&queue.clock).await;
    let worker = joined(&store).await;
    claim_one(&store, worker, 1).await;
    claim_one(&store, worker, 2).await;
    // Committed late, by somebody whose clock was the same.
    let raw = queue.stage.raw().await;
    let late =
        "update runs set state = 'queued', due_at = 1, finished_at = null where created_at = 7";
    raw.batch_execute(late).await.unwrap();
    let (lease, claims) = claim_one(&store, worker, 3).await;
    assert_eq!(lease.run, numbered(PASSED + 3), "this claim looks behind the floor");
    let again = claims.next_due.unwrap();
    assert!(again.since(store.clock().now()) <= Duration::from_secs(1));
    queue.clock.advance(again.since(store.clock().now()));
    let (lease, _) = claim_one(&store, worker, 4).await;
    assert_eq!(lease.run, numbered(7));
}

/// Fails where the last claims before a queue is empty say that there is nothing to come back for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_behind_the_floor_that_finds_nothing_says_when_to_look_again() {
    let queue = Queue::new(1).await;
    let store = queue.stage.open_at(&queue.clock).await;
    let worker = joined(&store).await;
    assert_eq!(store.claim(claim_of(worker, 1)).await.unwrap().runs.len(), 1);
    let claims = store.claim(claim_of(worker, 2)).await.unwrap();
    assert!(claims.runs.is_empty() && !claims.more);
    let again = claims.next_due.unwrap().since(store.clock().now());
    assert!(again <= Duration::from_secs(1), "{again:?}");
    queue.clock.advance(again);
    let claims = store.claim(claim_of(worker, 3)).await.unwrap();
    assert_eq!(claims.next_due, None, "it has looked from the head");
}

/// Fails where a timer that this very claim woke waits for the next look from the head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_wakes_before_the_floor_it_takes() {
    let queue = Queue::new(10).await;
    let store = queue.stage.open_at(&queue.clock).await;
    let worker = joined(&store).await;
    let (first, _) = claim_one(&store, worker, 1).await;
    claim_one(&store, worker, 2).await;
    let park = End::Parked {
        wake_at: Some(store.clock().now()),
        waits_for: Waits::Timer { step: "t".to_owned() },
        wakes_seen: 0,
    };
    store.settle(first, Settle::new(vec![], park)).await.unwrap();
    let (lease, _) = claim_one(&store, worker, 3).await;
    assert_eq!(lease.run, first.run);
}

/// Fails where a floor of one priority hides another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_higher_priority_goes_first_behind_the_floor_too() {
    let queue = Queue::new(10).await;
    let store = queue.stage.open_at(&queue.clock).await;
    let worker = joined(&store).await;
    claim_one(&store, worker, 1).await;
    let low = start(&store, NewRun { priority: -1, ..new_run() }).await;
    let high = start(&store, NewRun { priority: 1, ..new_run() }).await;
    let higher = start(&store, NewRun { priority: 2, ..new_run() }).await;
    let claims = store.claim(claim_of(worker, 2)).await.unwrap();
    let order: Vec<_> = claims.runs.iter().map(|claimed| claimed.lease.run).collect();
    assert_eq!(order.len(), 12);
    assert_eq!((order[0], order[1], order[11]), (higher, high, low));
}
