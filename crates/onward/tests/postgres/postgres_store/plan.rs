//! What statements read: finished runs and runs that are kept off cost the living nothing, and no
//! statement reads a table from end to end, whatever the planner was told about it.
//!
//! Measured by the server's own counters of a schema, over everything that a store does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use onward::store::*;
use onward::{Code, WorkerId};
use tokio_postgres::Client;

use super::stage::*;

/// How often everything is done: a connection that executes a statement more than five times may
/// get a plan that knows no values.
const LIVES: i64 = 12;

/// Adds finished runs, all in states that claims and sweeps look for when the planner looked at
/// them last: after a backlog was worked off, its statistics say that most runs are queued.
async fn add_finished(raw: &Client, count: i64) {
    let sql = format!(
        "insert into runs (id, state, attempt, wakes, crashes, priority, due_at, workflow, queue,
             created_at, duplicates)
         select md5(i::text)::uuid, (array['queued', 'waiting', 'running'])[1 + i % 3], 1, 0, 0, 0,
             i, 'index', 'default', i, 0
         from generate_series(1, {count}) i;
         insert into inputs select id, '1', null from runs;
         insert into records
         select id, 1, 'a', 0, 'fired', null, 1, 1, 0, 0, null, false, null from runs;
         analyze;
         update runs set state = 'completed', due_at = null, finished_at = created_at"
    );
    raw.batch_execute(&sql).await.unwrap();
    raw.batch_execute("vacuum runs").await.unwrap();
}

/// Adds queued runs that the test's build is kept off.
async fn add_kept(raw: &Client, count: i64) {
    let sql = format!(
        "insert into runs (id, state, attempt, wakes, crashes, priority, due_at, workflow, queue,
             created_at, duplicates, stuck_builds)
         select md5('kept ' || i)::uuid, 'queued', 1, 0, 0, 0, i, 'index', 'default', i, 0, '[\"b1\"]'
         from generate_series(1, {count}) i"
    );
    raw.batch_execute(&sql).await.unwrap();
    raw.batch_execute("vacuum analyze runs").await.unwrap();
}

/// Everything that a run may meet, and every sweep and prune.
async fn live(store: &PostgresStore, worker: WorkerId, turn: i64) {
    let key = format!("k{turn}");
    start(store, keyed_run(&key)).await;
    start(store, keyed_run(&key)).await;
    let lease = claimed(store, worker, 10 * turn + 1).await;
    store.record(lease, vec![done(store, 1, "a")].into()).await.unwrap();
    let waits_for = onward::Waits::Timer { step: "t".to_owned() };
    let wake_at = Some(onward::Timestamp::from_millis(store.clock().now().as_millis() - 1_000));
    let park = End::Parked { wake_at, waits_for, wakes_seen: 0 };
    store.settle(lease, Settle::new(vec![done(store, 2, "b")], park)).await.unwrap();
    let lease = claimed(store, worker, 10 * turn + 2).await;
    let stuck = End::Stuck { code: Code::HistoryMismatch, detail: "x".into(), wakes_seen: 1 };
    store.settle(lease, Settle::new(vec![], stuck)).await.unwrap();
    store.sweep(sweep_of(worker)).await.unwrap();
    store.retry(lease.run).await.unwrap();
    let lease = claimed(store, worker, 10 * turn + 3).await;
    store.cancel(lease.run).await.unwrap();
    store.claim(claim_of(worker, 10 * turn + 4)).await.unwrap();
    let suspect = Claim { mode: ClaimMode::Suspect, ..claim_of(worker, 10 * turn + 5) };
    store.claim(suspect).await.unwrap();
    store.settle(lease, Settle::new(vec![], End::Completed(json("1")))).await.unwrap();
    store.get(Which::Key { workflow: WORKFLOW.to_owned(), key }).await.unwrap();
    store.history(lease.run, None, 10).await.unwrap();
    let leaver = joined(store).await;
    started(store).await;
    claimed(store, leaver, 1).await;
    assert_eq!(store.renew(leaver).await.unwrap().held.len(), 1);
    store.leave(leaver).await.unwrap();
    let lease = claimed(store, worker, 10 * turn + 6).await;
    store.settle(lease, Settle::new(vec![], End::Completed(json("1")))).await.unwrap();
    let recent = Prune { limit: 1, ..Prune::older_than(Duration::from_secs(3600)) };
    store.prune(recent).await.unwrap();
    let now = store.clock().now();
    let after = (now, onward::RunId::from_u128(0));
    let look = EndLook { state: onward::RunState::Completed, after, before: now, limit: 10 };
    store.ends(look).await.unwrap();
}

/// Rows that were read, by index, and by table where one was read whole.
type Reads = BTreeMap<String, i64>;

/// The rows that a few lives made the server read.
async fn rows_read(finished: i64, kept: i64) -> Reads {
    let stage = Stage::apart().await;
    drop(stage.open().await);
    let raw = stage.raw().await;
    add_finished(&raw, finished).await;
    if kept > 0 {
        add_kept(&raw, kept).await;
    }
    let before = counted(&stage).await;
    let store = stage.open().await;
    let worker = joined(&store).await;
    for turn in 0..LIVES {
        live(&store, worker, turn).await;
    }
    drop(store);
    let mut reads = counted(&stage).await;
    reads.iter_mut().for_each(|(name, rows)| *rows -= before[name]);
    reads
}

/// The counters of a schema, when no connection is left that has not told its own. Workers are
/// few, and read whole.
async fn counted(stage: &Stage) -> Reads {
    let raw = stage.raw().await;
    let alive = "select count(*) from pg_stat_activity where application_name = $1";
    until("the stores are closed", async || {
        raw.query_one(alive, &[&stage.name()]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    counts_told(&raw).await;
    reads_of(&raw, stage).await
}

async fn reads_of(raw: &Client, stage: &Stage) -> Reads {
    let sql = "select relname || ' as a whole', seq_tup_read
               from pg_stat_user_tables
               where schemaname = $1 and relname not in ('workers', 'schema')
               union all
               select indexrelname, idx_tup_read
               from pg_stat_user_indexes
               where schemaname = $1";
    let rows = raw.query(sql, &[&stage.name()]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Compares what was read beside few and beside many. What the lives left behind in the indexes is
/// read again or not, as the server gets to tidy it up.
fn assert_alike(few: &Reads, many: &Reads) {
    for (name, rows) in many {
        assert!(*rows <= 2 * few[name] + 5_000, "{name}: {}, then {rows}", few[name]);
    }
}

/// Fails where a statement's plan depends on what the planner believes to be queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_runs_cost_the_living_nothing() {
    assert_alike(&rows_read(1_000, 0).await, &rows_read(100_000, 0).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_a_build_is_kept_off_cost_its_claims_nothing() {
    assert_alike(&rows_read(10_000, 10).await, &rows_read(10_000, 10_000).await);
}

/// Each look for work walks the index that is made for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_statements_walk_their_own_indexes() {
    let reads = rows_read(10_000, 10).await;
    let own = ["queued", "waiting", "running", "marked", "stuck", "kept", "finished", "pkey"];
    for index in own {
        assert!(reads[&format!("runs_{index}")] > 0, "{index}: {reads:?}");
    }
}

/// Fails where a plan is kept that was made when the tables were empty: nothing was read faster
/// than all of it then. A fresh database gets its runs long before its first statistics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_made_for_empty_tables_do_not_stay() {
    let stage = Stage::apart().await;
    let raw = stage.raw().await;
    let store = stage.open().await;
    // Nothing but the test itself may tell the planner anything.
    for table in ["runs", "records", "keys", "inputs", "outputs", "attempts"] {
        let off = format!("alter table {table} set (autovacuum_enabled = off)");
        raw.batch_execute(&off).await.unwrap();
    }
    let worker = joined(&store).await;
    for turn in 0..LIVES {
        live(&store, worker, turn).await;
    }
    // Finished runs, and as many that the worker holds.
    let sql = format!(
        "insert into runs (id, state, attempt, wakes, crashes, priority, worker, ticket, workflow,
             queue, created_at, duplicates)
         select md5(i::text)::uuid, 'running', 1, 0, 0, 0, '{:032x}', -i, 'index', 'default', i, 0
         from generate_series(1, 10000) i;
         insert into runs (id, state, attempt, wakes, crashes, priority, finished_at, workflow,
             queue, created_at, duplicates)
         select md5('done ' || i)::uuid, 'completed', 1, 0, 0, 0, i, 'index', 'default', i, 0
         from generate_series(1, 10000) i",
        worker.as_u128()
    );
    raw.batch_execute(&sql).await.unwrap();
    let before = reads_of(&raw, &stage).await;
    for turn in LIVES..2 * LIVES {
        live(&store, worker, turn).await;
    }
    drop(store);
    let after = counted(&stage).await;
    let most = 5_000 * LIVES;
    for (name, rows) in &after {
        let read = rows - before.get(name).copied().unwrap_or_default();
        assert!(read < most, "{name}: {read} rows");
    }
}

/// A long transaction keeps what was claimed at the head of the queue's index. Claims get past it, and
/// must not come to a stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_go_on_while_a_snapshot_is_held() {
    let stage = Stage::apart().await;
    let store = stage.open().await;
    let worker = joined(&store).await;
    let reader = stage.raw().await;
    let hold = "begin isolation level repeatable read; select count(*) from runs";
    reader.batch_execute(hold).await.unwrap();
    let mut times = Vec::new();
    for part in 0..10 {
        for _ in 0..2 {
            store.start((0..1_000).map(|_| new_run()).collect()).await.unwrap();
        }
        let began = Instant::now();
        for ticket in 0..20 {
            let runs = store.claim(claim_of(worker, 100 * part + ticket)).await.unwrap().runs;
            assert_eq!(runs.len(), 100);
            let ends = runs.into_iter().map(|claimed| {
                let end = Settle::new(vec![], End::Completed(json("1")));
                store.settle(claimed.lease, end)
            });
            for end in futures::future::join_all(ends).await {
                end.unwrap();
            }
        }
        times.push(began.elapsed());
    }
    // Some growth is what the walk costs, and a busy machine; a stand would be far more.
    assert!(times[9] < times[0] * 10, "{times:?}");
}

/// The pages that one claim of one run reads.
async fn pages_of_a_claim(raw: &Client, stage: &Stage, worker: WorkerId, ticket: i64) -> i64 {
    let sql = format!(
        "explain (analyze, buffers, format json)
         select * from {}.claim(null, '{:032x}', {ticket}, 'b1', '{{default}}', '{{index}}', 1, false,
             1000, 1000000, 1000, 0, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')",
        stage.name(),
        worker.as_u128()
    );
    let rows = raw.simple_query(&sql).await.unwrap();
    let text: String = (rows.iter())
        .filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    let (_, rest) = text.split_once("\"Shared Hit Blocks\": ").unwrap();
    rest.split(',').next().unwrap().parse().unwrap()
}

/// What was claimed stands at the head of the queue's index until a vacuum. Fails where a claim that
/// leaves runs behind walks over it more than once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_walks_once_over_what_was_claimed_before() {
    let stage = Stage::apart().await;
    let store = stage.open().await;
    let raw = stage.raw().await;
    raw.batch_execute("alter table runs set (autovacuum_enabled = off)").await.unwrap();
    let worker = joined(&store).await;
    for _ in 0..6 {
        store.start((0..1_000).map(|_| new_run()).collect()).await.unwrap();
    }
    for ticket in 0..59 {
        assert_eq!(store.claim(claim_of(worker, ticket)).await.unwrap().runs.len(), 100);
    }
    let index = "select pg_relation_size('runs_queued') / current_setting('block_size')::bigint";
    let whole: i64 = raw.query_one(index, &[]).await.unwrap().get(0);
    assert!(whole > 30, "{whole} pages are no walk");
    // The first make the session's plans, and note in the index what is gone: as soon as nobody may
    // still see it, as an analysis of the tables that is under way.
    let mut pages = Vec::new();
    for ticket in 100..190 {
        pages.push(pages_of_a_claim(&raw, &stage, worker, ticket).await);
        if pages.last().is_some_and(|pages| *pages < whole + 60) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("for each claim so many pages, with {whole} in the index: {pages:?}");
}

/// A claim from queues without limits reads nothing that is there for those with: its plan is the one
/// that it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_without_limits_pay_nothing_for_those_with() {
    let reads = rows_read(1_000, 0).await;
    for index in ["runs_slots", "runs_lanes", "runs_laneless", "grants_pkey", "queues_pkey"] {
        assert_eq!(reads[index], 0, "{index}");
    }
    assert_eq!((reads["queues as a whole"], reads["grants as a whole"]), (0, 0));
}

/// The rows that claims read from a queue whose only lane is full, with so many runs queued in it.
async fn rows_read_beside_a_full_lane(queued: i64) -> Reads {
    let stage = Stage::apart().await;
    let store = stage.open().await;
    let limits = onward::QueueLimits { per_lane: Some(1), ..Default::default() };
    let put = PutQueue { name: "default".to_owned(), limits };
    store.queues().unwrap().put_queue(put).await.unwrap();
    let worker = joined(&store).await;
    start(&store, NewRun { lane: Some("acme".to_owned()), ..new_run() }).await;
    claimed(&store, worker, 1).await;
    drop(store);
    let raw = stage.raw().await;
    let sql = format!(
        "insert into runs (id, state, attempt, wakes, crashes, priority, due_at, workflow, queue,
             created_at, duplicates, lane)
         select md5('laned ' || i)::uuid, 'queued', 0, 0, 0, 0, i, 'index', 'default', i, 0, 'acme'
         from generate_series(1, {queued}) i"
    );
    raw.batch_execute(&sql).await.unwrap();
    raw.batch_execute("vacuum analyze runs").await.unwrap();
    let before = counted(&stage).await;
    let store = stage.open().await;
    for turn in 0..LIVES {
        let claims = store.claim(claim_of(worker, 10 + turn)).await.unwrap();
        assert!(claims.runs.is_empty() && !claims.more, "the lane is full");
    }
    drop(store);
    let mut reads = counted(&stage).await;
    reads.iter_mut().for_each(|(name, rows)| *rows -= before[name]);
    reads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_full_lane_cost_a_claim_nothing() {
    let (few, many) =
        (rows_read_beside_a_full_lane(10).await, rows_read_beside_a_full_lane(20_000).await);
    assert_alike(&few, &many);
}

/// Adds runs that ended, and so many for each of them that are stuck under another build.
async fn add_stuck(raw: &Client, count: i64, ended_for_each: i64) {
    let sql = format!(
        "insert into runs (id, state, attempt, wakes, crashes, priority, workflow, queue, created_at,
             duplicates, stuck, stuck_builds, waits_for, finished_at)
         select md5(i::text)::uuid, case when s then 'waiting' else 'completed' end, 1, 0, 0, 0, 'index',
             'default', i, 0, case when s then 'history_mismatch' end, case when s then '[\"b0\"]' end,
             case when s then '{{\"for\":\"stuck\",\"code\":\"history_mismatch\",\"detail\":\"x\"}}' end,
             case when not s then i end
         from generate_series(0, {count} * ({ended_for_each} + 1) - 1) i,
             lateral (select i % ({ended_for_each} + 1) = 0 as s) k"
    );
    raw.batch_execute(&sql).await.unwrap();
    raw.batch_execute("vacuum analyze runs").await.unwrap();
}

/// Fails where a sweep looks for stuck runs along the primary key, past every run that is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_finds_stuck_runs_among_many_by_their_index() {
    let stage = Stage::apart().await;
    drop(stage.open().await);
    let raw = stage.raw().await;
    add_stuck(&raw, 5_000, 9).await;
    let before = counted(&stage).await;
    let store = stage.open().await;
    let worker = joined(&store).await;
    assert!(store.sweep(sweep_of(worker)).await.unwrap().more);
    drop(store);
    let reads = counted(&stage).await;
    let most = i64::try_from(onward::limits::SWEEP_BATCH_MAX).unwrap() * 3;
    for (name, rows) in reads {
        let read = rows - before[&name];
        assert!(read <= most, "{name}: {read} rows for {most} at most");
    }
    let left = "select count(*) from runs where stuck is not null";
    let left: i64 = raw.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 5_000 - most / 3);
}
