//! What is particular to the SQLite store: the file, its locks, its processes, its plans. What
//! every store must do is in the conformance suite.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use onward::limits::LOST_WORKERS_KEPT;
use onward::store::*;
use onward::store::{SqliteOptions, SqliteStore};
use onward::{
    Code, Entry, Filter, Json, Query, Record, RunId, RunState, TestClock, Timestamp, Waits,
    WorkerId,
};
use rusqlite::{Connection, StatementStatus, ToSql};

const WORKFLOW: &str = "index";

pub(super) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(super) fn new_run() -> NewRun {
    NewRun {
        id: RunId::new(),
        workflow: WORKFLOW.to_owned(),
        queue: "default".to_owned(),
        lane: None,
        priority: 0,
        input: json("{}"),
        key: None,
        start_at: StartAt::Now,
        timeout_ms: None,
        tags: BTreeMap::new(),
        caller: "test".to_owned(),
        parent: None,
        claimant: None,
    }
}

pub(super) fn new_worker() -> NewWorker {
    NewWorker {
        id: WorkerId::new(),
        build: "b1".to_owned(),
        place: "here".to_owned(),
        queues: vec!["default".to_owned()],
        workflows: vec![WORKFLOW.to_owned()],
        lease_ms: 10_000,
        concurrency: 8,
    }
}

pub(super) fn claim_of(worker: WorkerId, ticket: i64) -> Claim {
    Claim {
        worker,
        ticket,
        build: "b1".to_owned(),
        queues: vec!["default".to_owned()],
        workflows: vec![WORKFLOW.to_owned()],
        limit: 100,
        mode: ClaimMode::Ordinary,
    }
}

pub(super) async fn joined(store: &SqliteStore) -> WorkerId {
    let worker = new_worker();
    let id = worker.id;
    store.join(worker).await.unwrap();
    id
}

pub(super) async fn started(store: &SqliteStore) -> RunId {
    let run = new_run();
    let id = run.id;
    store.start(vec![run]).await.unwrap().remove(0).unwrap();
    id
}

pub(super) async fn claimed(store: &SqliteStore, worker: WorkerId, ticket: i64) -> Lease {
    store.claim(claim_of(worker, ticket)).await.unwrap().runs[0].lease
}

pub(super) fn done(store: &SqliteStore, seq: u64, step: &str) -> Record {
    Record::new(seq, step, Entry::Done(json("1")), store.clock().now())
}

fn code(opened: Result<SqliteStore, onward::Error>) -> Code {
    opened.map(|_| ()).unwrap_err().code()
}

pub(super) fn impatient() -> SqliteOptions {
    SqliteOptions { busy_timeout: Duration::from_millis(50), ..SqliteOptions::default() }
}

pub(super) struct Temp {
    pub(super) folder: tempfile::TempDir,
}

impl Temp {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("onward.db")
    }

    pub(super) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path()).unwrap()
    }

    /// A connection behind the store's back.
    pub(super) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

#[test]
fn a_commit_is_synced() {
    let temp = Temp::new();
    let store = temp.open();
    assert_eq!(store.writer_pragma("synchronous"), Some(2));
    let mode: String = temp.raw().query_row("pragma journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    assert_eq!(store.writer_pragma("page_size"), Some(4096));
}

#[test]
fn a_newer_schema_is_refused_and_named() {
    let temp = Temp::new();
    drop(temp.open());
    temp.raw().execute("update onward_schema set version = 99", []).unwrap();
    let error = SqliteStore::open(temp.path()).unwrap_err();
    assert_eq!(error.code(), Code::SchemaTooNew);
    assert!(error.to_string().contains("99"), "{error}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite/migrations");
    let migrations = std::fs::read_dir(folder).unwrap().count();
    assert!(error.to_string().contains(&format!("knows {migrations}.")), "{error}");
}

#[test]
fn the_schema_is_the_one_on_paper() {
    let temp = Temp::new();
    drop(temp.open());
    let conn = temp.raw();
    let mut statement = conn
        .prepare("select sql from sqlite_master where sql is not null order by tbl_name, rowid")
        .unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let schema: String = rows.map(|sql| sql.unwrap() + ";\n\n").collect();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite/schema.sql");
    if std::env::var_os("ONWARD_WRITE_GOLDEN").is_some() {
        std::fs::write(&golden, &schema).unwrap();
    }
    assert_eq!(schema, std::fs::read_to_string(golden).unwrap());
}

#[test]
fn many_may_create_one_file_at_once() {
    let temp = Temp::new();
    let path = temp.path();
    std::thread::scope(|scope| {
        let opening: Vec<_> =
            (0..8).map(|_| scope.spawn(|| SqliteStore::open(&path).map(drop))).collect();
        opening.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
}

#[tokio::test]
async fn a_users_own_tables_and_version_are_left_alone() {
    let temp = Temp::new();
    let user = temp.raw();
    user.execute_batch(
        "pragma user_version = 7;
         pragma application_id = 8;
         create table runs (distance integer);
         create index runs_id on runs (distance);
         insert into runs values (42)",
    )
    .unwrap();
    let store = temp.open();
    let run = started(&store).await;
    drop(store);
    let store = temp.open();
    assert!(store.get(Which::Id(run)).await.unwrap().is_some());
    let read = |sql| user.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(read("pragma user_version"), 7);
    assert_eq!(read("pragma application_id"), 8);
    assert_eq!(read("select distance from runs"), 42);
}

#[test]
fn files_that_cannot_be_used_get_their_codes() {
    let temp = Temp::new();
    let missing = temp.folder.path().join("no/such/onward.db");
    assert_eq!(code(SqliteStore::open(missing)), Code::InvalidStorePath);

    let text = temp.folder.path().join("text.db");
    std::fs::write(&text, "this is not a database, whatever its name says. ".repeat(100)).unwrap();
    assert_eq!(code(SqliteStore::open(text)), Code::StoreCorrupt);

    assert_eq!(code(SqliteStore::open("/proc/onward.db")), Code::StoreReadOnly);
    assert_eq!(code(SqliteStore::open(temp.folder.path())), Code::InvalidStorePath);
}

#[test]
fn a_file_that_another_program_holds_is_locked() {
    let temp = Temp::new();
    let holder = temp.raw();
    holder.execute_batch("begin exclusive").unwrap();
    assert_eq!(code(SqliteStore::open_with(temp.path(), impatient())), Code::StoreLocked);
}

#[tokio::test]
async fn a_write_past_the_busy_timeout_is_locked_and_then_goes() {
    let temp = Temp::new();
    let store = SqliteStore::open_with(temp.path(), impatient()).unwrap();
    let holder = temp.raw();
    holder.execute_batch("begin immediate").unwrap();
    let run = new_run();
    let refused = store.start(vec![run.clone()]).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(Outage::Locked, _)), "{refused}");
    holder.execute_batch("commit").unwrap();
    let started = store.start(vec![run]).await.unwrap().remove(0).unwrap();
    assert_eq!(started.how, StartedHow::New);
}

#[tokio::test]
async fn a_full_disk_fails_the_write_and_loses_nothing() {
    let temp = Temp::new();
    let store = temp.open();
    let kept = started(&store).await;
    let pages = store.writer_pragma("page_count").unwrap();
    store.writer_pragma(&format!("max_page_count = {pages}"));
    let mut big = new_run();
    big.input = Json::of(&"x".repeat(100_000)).unwrap();
    let refused = store.start(vec![big.clone()]).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(Outage::Full, _)), "{refused}");
    assert!(store.get(Which::Id(kept)).await.unwrap().is_some());
    assert!(store.get(Which::Id(big.id)).await.unwrap().is_none());

    store.writer_pragma("max_page_count = 1000000");
    store.start(vec![big.clone()]).await.unwrap().remove(0).unwrap();
    assert!(store.get(Which::Id(big.id)).await.unwrap().is_some());
}

#[tokio::test]
async fn two_stores_on_one_file_see_each_other_and_fence() {
    let temp = Temp::new();
    let clock = TestClock::new();
    let open = || {
        let options = SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::default() };
        SqliteStore::open_with(temp.path(), options).unwrap()
    };
    let (here, there) = (open(), open());
    let run = started(&here).await;
    let (first, second) = (joined(&here).await, joined(&there).await);
    let lease = claimed(&here, first, 1).await;
    assert_eq!(lease.run, run);
    here.record(lease, vec![done(&here, 1, "a")].into()).await.unwrap();
    assert!(there.claim(claim_of(second, 1)).await.unwrap().runs.is_empty());

    clock.advance(Duration::from_secs(11));
    there.renew(second).await.unwrap();
    let swept = there.sweep(Sweep { worker: second, expired: ExpiredLeases::Take }).await.unwrap();
    assert_eq!((swept.lost, swept.taken), (vec![first], vec![run]));
    let stale = here.record(lease, vec![done(&here, 2, "b")].into()).await.unwrap_err();
    assert!(matches!(stale, Error::LeaseLost));
    here.record(lease, vec![done(&here, 1, "a")].into()).await.unwrap();

    let taken = there.claim(claim_of(second, 2)).await.unwrap().runs.remove(0);
    assert_eq!(taken.lease.attempt, 2);
    assert_eq!(taken.history.len(), 1);
    assert_eq!(taken.builds, BTreeMap::from([(1, "b1".to_owned())]));
}

#[tokio::test]
async fn another_stores_commit_wakes_a_waiter() {
    let temp = Temp::new();
    let (here, there) = (temp.open(), temp.open());
    let waiter = here.wait(Topic::Work);
    started(&there).await;
    tokio::time::timeout(Duration::from_secs(2), waiter).await.unwrap();
}

#[tokio::test]
async fn a_stores_own_commits_wake_by_topic_only() {
    let temp = Temp::new();
    let store = temp.open();
    let quiet = store.wait(Topic::Run(RunId::new()));
    let work = store.wait(Topic::Work);
    started(&store).await;
    work.await;
    let woken = tokio::time::timeout(Duration::from_millis(400), quiet).await;
    assert!(woken.is_err());
}

#[tokio::test]
async fn a_record_wakes_nobody_and_a_settle_does() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let mut waiter = std::pin::pin!(store.wait(Topic::Run(lease.run)));
    store.record(lease, vec![done(&store, 1, "a")].into()).await.unwrap();
    assert!(futures::poll!(&mut waiter).is_pending());
    let end = End::Completed(json("1"));
    store.settle(lease, Settle::new(vec![done(&store, 2, "b")], end)).await.unwrap();
    assert!(futures::poll!(&mut waiter).is_ready());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_come_together_share_a_commit() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    let runs: Vec<NewRun> = (0..100).map(|_| new_run()).collect();
    store.start(runs).await.unwrap();
    let leases: Vec<Lease> = (store.claim(claim_of(worker, 1)).await.unwrap().runs)
        .into_iter()
        .map(|claimed| claimed.lease)
        .collect();
    let before = store.commits();
    let writes = (1..=20).flat_map(|seq| {
        let store = &store;
        leases.iter().map(move |lease| {
            store.record(*lease, vec![done(store, seq, &format!("step {seq}"))].into())
        })
    });
    for answer in join_all(writes).await {
        answer.unwrap();
    }
    let commits = store.commits() - before;
    assert!(commits < 200, "2000 writes took {commits} commits");
    let history = store.history(leases[0].run, None, 100).await.unwrap();
    assert_eq!(history.records.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_write_is_answered_however_they_race() {
    let temp = Temp::new();
    let stores = [Arc::new(temp.open()), Arc::new(temp.open())];
    let tasks = (0..16).map(|number| {
        let store = Arc::clone(&stores[number % 2]);
        tokio::spawn(async move {
            for _ in 0..50 {
                // One that is polled and one that is dropped unpolled.
                started(&store).await;
                drop(store.start(vec![new_run()]));
            }
        })
    });
    let all = tokio::time::timeout(Duration::from_secs(60), join_all(tasks)).await.unwrap();
    all.into_iter().for_each(|task| task.unwrap());
    stores.into_iter().for_each(|store| drop(Arc::into_inner(store).unwrap()));
    let count: i64 =
        temp.raw().query_row("select count(*) from onward_runs", [], |r| r.get(0)).unwrap();
    assert_eq!(count, 16 * 50 * 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_write_fails_its_own_caller_only() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    let (good, bad) = (started(&store).await, started(&store).await);
    store.claim(claim_of(worker, 1)).await.unwrap();
    temp.raw()
        .execute("update onward_runs set wakes = -1 where id = ?1", [bad.as_u128().to_be_bytes()])
        .unwrap();
    // A large write keeps the thread busy, so that the others meet in one batch.
    let filler = store.start((0..300).map(|_| new_run()).collect());
    let lease = |run| Lease { run, worker, attempt: 1 };
    let end = || Settle::new(Vec::new(), End::Completed(json("1")));
    let before = store.record(lease(good), vec![done(&store, 1, "a")].into());
    let refused = store.settle(lease(bad), end());
    let after = store.settle(lease(good), end());
    filler.await.unwrap();
    before.await.unwrap();
    assert!(matches!(refused.await.unwrap_err(), Error::Corrupt(_)));
    assert_eq!(after.await.unwrap(), Settled::AsSaid);
    assert_eq!(store.get(Which::Id(good)).await.unwrap().unwrap().state, RunState::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_small_while_readers_come_and_go() {
    let temp = Temp::new();
    let store = Arc::new(temp.open());
    assert_eq!(store.writer_pragma("wal_autocheckpoint"), Some(0));
    let readers = [(); 4].map(|()| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                store.list(Query { limit: 1, ..Query::default() }).await.unwrap();
            }
        })
    });
    // Some 70 MiB of pages, one commit each.
    for _ in 0..3_000 {
        let input = Json::of(&"x".repeat(16 * 1024)).unwrap();
        store.start(vec![NewRun { input, ..new_run() }]).await.unwrap();
    }
    readers.iter().for_each(|reader| reader.abort());
    let log = std::fs::metadata(temp.folder.path().join("onward.db-wal")).unwrap().len();
    assert!(log < 40 * 1024 * 1024, "{log} bytes");
}

#[tokio::test]
async fn a_corrupt_run_is_set_aside_and_the_others_go_on() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    let (bad, good) = (started(&store).await, started(&store).await);
    let raw = temp.raw();
    raw.execute(
        "update onward_inputs set input = cast(x'ff' as text)
         where no = (select no from onward_runs where id = ?1)",
        [bad.as_u128().to_be_bytes()],
    )
    .unwrap();
    let claims = store.claim(claim_of(worker, 1)).await.unwrap();
    assert_eq!(claims.runs.len(), 1);
    assert_eq!(claims.runs[0].run.id, good);
    assert!(!claims.more);
    assert!(matches!(store.get(Which::Id(bad)).await.unwrap_err(), Error::Corrupt(_)));

    let listed = store.list(Query { limit: 10, ..Query::default() }).await.unwrap().runs;
    let shown = listed.iter().find(|run| run.id == bad).unwrap();
    assert_eq!(shown.state, RunState::Waiting);
    assert!(
        matches!(&shown.waits_for, Some(Waits::Stuck { code, .. }) if code == "corrupt_record")
    );

    // Not mended by a build that met it already.
    store.sweep(Sweep { worker, expired: ExpiredLeases::Take }).await.unwrap();
    assert!(store.claim(claim_of(worker, 2)).await.unwrap().runs.is_empty());
    raw.execute("update onward_inputs set input = '{}'", []).unwrap();
    assert_eq!(store.retry(bad).await.unwrap().state, RunState::Queued);
    assert_eq!(claimed(&store, worker, 3).await.run, bad);
}

fn child_of(lease: Lease, step: &str) -> NewRun {
    let parent = NewParent { lease, step: step.to_owned(), detached: false };
    NewRun { parent: Some(parent), ..new_run() }
}

/// Makes a run unreadable.
pub(super) fn damage(raw: &Connection, run: RunId) {
    let sql = "update onward_inputs set input = cast(x'ff' as text)
               where no = (select no from onward_runs where id = ?1)";
    assert_eq!(raw.execute(sql, [run.as_u128().to_be_bytes()]).unwrap(), 1);
}

/// Fails where a sweep stops at a child that it cannot read: nobody's runs were taken over any more.
#[tokio::test]
async fn a_corrupt_child_of_a_cancelled_run_holds_up_no_sweep() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let (bad, good) = (child_of(lease, "$child/a"), child_of(lease, "$child/b"));
    let (bad_id, good_id) = (bad.id, good.id);
    store.start(vec![bad, good]).await.unwrap();
    damage(&temp.raw(), bad_id);
    store.cancel(lease.run).await.unwrap();
    let sweep = Sweep { worker, expired: ExpiredLeases::Take };
    while store.sweep(sweep.clone()).await.unwrap().more {}
    let good = store.get(Which::Id(good_id)).await.unwrap().unwrap();
    assert_eq!(good.state, RunState::Cancelled);
    let sql = "select cancel_at is not null from onward_runs where id = ?1";
    let asked =
        temp.raw().query_row(sql, [bad_id.as_u128().to_be_bytes()], |row| row.get::<_, bool>(0));
    assert!(asked.unwrap(), "it is asked all the same");
}

/// Fails where a run cannot end because its parent cannot be read.
#[tokio::test]
async fn a_corrupt_parent_holds_up_no_child() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    let parent = started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    for (ticket, how) in [(2, "completes"), (3, "is cancelled"), (4, "is late")] {
        let timeout_ms = (how == "is late").then_some(1);
        let child = NewRun { timeout_ms, ..child_of(lease, &format!("$child/{ticket}")) };
        let id = child.id;
        store.start(vec![child]).await.unwrap().remove(0).unwrap();
        damage(&temp.raw(), parent);
        match how {
            "completes" => {
                let held = claimed(&store, worker, ticket).await;
                let end = Settle::new(Vec::new(), End::Completed(json("1")));
                store.settle(held, end).await.unwrap();
            }
            "is cancelled" => drop(store.cancel(id).await.unwrap()),
            _ => {
                std::thread::sleep(Duration::from_millis(5));
                let sweep = Sweep { worker, expired: ExpiredLeases::Take };
                store.sweep(sweep).await.unwrap();
            }
        }
        let ended = store.get(Which::Id(id)).await.unwrap().unwrap();
        assert!(ended.state.is_final(), "{how}: {ended:?}");
        temp.raw().execute("update onward_inputs set input = '{}'", []).unwrap();
    }
}

/// Fails where those that cannot be read take the places of those behind them.
#[tokio::test]
async fn corrupt_schedules_hold_up_none_behind_them() {
    let temp = Temp::new();
    let store = temp.open();
    for number in 0..41 {
        let put = PutSchedule {
            name: format!("s{number:02}"),
            spec: onward::ScheduleSpec::Cron {
                cron: "0 * * * *".to_owned(),
                time_zone: "UTC".to_owned(),
            },
            workflow: WORKFLOW.to_owned(),
            input: json("1"),
            queue: "default".to_owned(),
            lane: None,
            priority: 0,
            timeout_ms: None,
            tags: BTreeMap::new(),
            overlap: onward::Overlap::Skip,
            catch_up: onward::CatchUp::One,
            next_at: Some(onward::Timestamp::from_millis(1)),
        };
        store.put_schedule(put).await.unwrap();
    }
    temp.raw().execute("update onward_schedules set spec = '[' where name < 's40'", []).unwrap();
    let due = store.due_schedules(None, 32).await.unwrap().schedules;
    let names: Vec<_> = due.iter().map(|schedule| schedule.name.as_str()).collect();
    assert_eq!(names, ["s40"]);
    let page = store.list_schedules(None, 32).await.unwrap();
    assert_eq!((&page.schedules, page.more), (&due, false));
    assert_eq!(page.unreadable.len(), 40);
}

#[tokio::test]
async fn a_corrupt_record_sets_its_run_aside() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    let run = started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    store.record(lease, vec![done(&store, 1, "a")].into()).await.unwrap();
    store.settle(lease, Settle::new(Vec::new(), End::Released)).await.unwrap();
    temp.raw().execute("update onward_records set kind = 'guess'", []).unwrap();
    assert!(store.claim(claim_of(worker, 2)).await.unwrap().runs.is_empty());
    assert!(matches!(store.history(run, None, 10).await.unwrap_err(), Error::Corrupt(_)));
    let run = store.get(Which::Id(run)).await.unwrap().unwrap();
    assert_eq!(run.state, RunState::Waiting);
}

#[tokio::test]
async fn a_damaged_id_holds_up_no_other_run() {
    let temp = Temp::new();
    let clock = TestClock::new();
    let options = SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(temp.path(), options).unwrap();
    let (sweeper, old) = (joined(&store).await, joined(&store).await);
    // A pair each that waits, that is held by who leaves, and that is held by nobody who is known.
    for _ in 0..2 {
        let delayed = NewRun { start_at: StartAt::After(10), ..new_run() };
        store.start(vec![delayed]).await.unwrap().remove(0).unwrap();
    }
    for holder in [old, sweeper] {
        started(&store).await;
        started(&store).await;
        assert_eq!(store.claim(claim_of(holder, 1)).await.unwrap().runs.len(), 2);
    }
    let raw = temp.raw();
    raw.execute("update onward_runs set id = zeroblob(no % 7) where no % 2 = 0", []).unwrap();
    raw.execute("update onward_runs set worker = x'99', cancel_at = 1 where no > 4", []).unwrap();
    store.leave(old).await.unwrap();
    clock.advance(Duration::from_millis(10));
    let sweep = Sweep { worker: sweeper, expired: ExpiredLeases::Take };
    let swept = store.sweep(sweep).await.unwrap();
    assert_eq!((swept.taken.len(), swept.woken), (1, 2));
    let claims = store.claim(claim_of(sweeper, 2)).await.unwrap();
    assert_eq!(claims.runs.len(), 3);
    raw.execute(
        "update onward_runs set state = 'running', worker = ?1",
        [sweeper.as_u128().to_be_bytes()],
    )
    .unwrap();
    assert_eq!(store.claim(claim_of(sweeper, 3)).await.unwrap().marks.len(), 1);
}

#[tokio::test]
async fn damaged_ids_are_left_out_of_lists_and_counts() {
    let temp = Temp::new();
    let store = temp.open();
    let (whole, _) = (joined(&store).await, joined(&store).await);
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(started(&store).await);
    }
    let raw = temp.raw();
    // Short ones sort before the whole ids and long ones after them.
    raw.execute("update onward_runs set id = zeroblob(no) where no in (2, 4)", []).unwrap();
    raw.execute("update onward_runs set id = x'ff' where no = 6", []).unwrap();
    raw.execute(
        "update onward_workers set id = x'99' where id <> ?1",
        [whole.as_u128().to_be_bytes()],
    )
    .unwrap();
    let query = |before| Query { limit: 2, before, ..Query::default() };
    let first = store.list(query(None)).await.unwrap();
    assert_eq!(first.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [runs[4], runs[2]]);
    assert!(first.more);
    let rest = store.list(query(Some(runs[2]))).await.unwrap();
    assert_eq!(rest.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [runs[0]]);
    assert!(!rest.more);
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.workers.iter().map(|worker| worker.id).collect::<Vec<_>>(), [whole]);
    assert_eq!(stats.runs[&RunState::Queued], 6);
}

#[tokio::test]
async fn a_dead_workers_runs_are_taken_at_once_and_a_live_ones_are_not() {
    let temp = Temp::new();
    let (here, there) = (temp.open(), temp.open());
    let (alive, dead) = (joined(&there).await, {
        let store = temp.open();
        let dead = joined(&store).await;
        started(&store).await;
        claimed(&store, dead, 1).await;
        // The lock goes with the store, as it goes with a process.
        dead
    });
    let seen = here.stats().await.unwrap().workers;
    assert_eq!(seen.iter().map(|worker| worker.id).collect::<Vec<_>>(), [alive]);
    let sweeper = joined(&here).await;
    let swept = here.sweep(Sweep { worker: sweeper, expired: ExpiredLeases::Leave }).await.unwrap();
    assert_eq!(swept.lost, [dead]);
    assert_eq!(swept.taken.len(), 1);
    there.renew(alive).await.unwrap();
    let folder = temp.folder.path().join("onward.db-workers");
    assert!(!folder.join(dead.to_string()).exists());
    assert!(folder.join(alive.to_string()).exists());
    there.leave(alive).await.unwrap();
    assert!(!folder.join(alive.to_string()).exists());
}

#[tokio::test]
async fn a_join_that_failed_leaves_no_lock_file() {
    let temp = Temp::new();
    let store = temp.open();
    store.writer_pragma("max_page_count = 1");
    let queues = (0..200).map(|number| format!("{number}{}", "q".repeat(100))).collect();
    let worker = NewWorker { queues, ..new_worker() };
    let id = worker.id;
    store.join(worker).await.unwrap_err();
    let folder = temp.folder.path().join("onward.db-workers");
    assert!(!folder.join(id.to_string()).exists());
}

#[tokio::test]
async fn a_worker_without_a_lock_file_is_only_unknown() {
    let temp = Temp::new();
    let (here, there) = (temp.open(), temp.open());
    let unknown = joined(&there).await;
    let folder = temp.folder.path().join("onward.db-workers");
    std::fs::remove_file(folder.join(unknown.to_string())).unwrap();
    let sweeper = joined(&here).await;
    let swept = here.sweep(Sweep { worker: sweeper, expired: ExpiredLeases::Leave }).await.unwrap();
    assert!(swept.lost.is_empty());
}

#[tokio::test]
async fn workers_lost_long_ago_are_deleted() {
    let temp = Temp::new();
    let clock = TestClock::new();
    let options = SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(temp.path(), options).unwrap();
    let (sweeper, left) = (joined(&store).await, joined(&store).await);
    store.leave(left).await.unwrap();
    let workers = || {
        let count = "select count(*) from onward_workers";
        temp.raw().query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let sweep = Sweep { worker: sweeper, expired: ExpiredLeases::Take };
    clock.advance(LOST_WORKERS_KEPT);
    store.sweep(sweep.clone()).await.unwrap();
    assert_eq!(workers(), 2);
    clock.advance(Duration::from_millis(1));
    store.sweep(sweep).await.unwrap();
    assert_eq!(workers(), 1);
}

#[tokio::test]
async fn runs_of_a_missing_worker_are_taken() {
    let temp = Temp::new();
    let store = temp.open();
    let (sweeper, missing) = (joined(&store).await, joined(&store).await);
    let run = started(&store).await;
    claimed(&store, missing, 1).await;
    let id = missing.as_u128().to_be_bytes();
    temp.raw().execute("delete from onward_workers where id = ?1", [id]).unwrap();
    let sweep = Sweep { worker: sweeper, expired: ExpiredLeases::Leave };
    assert_eq!(store.sweep(sweep).await.unwrap().taken, [run]);
}

#[tokio::test]
async fn a_dropped_store_has_written_what_was_submitted() {
    let temp = Temp::new();
    let store = temp.open();
    let runs: Vec<NewRun> = (0..50).map(|_| new_run()).collect();
    for run in &runs {
        drop(store.start(vec![run.clone(), new_run(), new_run(), new_run(), new_run()]));
    }
    drop(store);
    let store = temp.open();
    for run in runs {
        assert!(store.get(Which::Id(run.id)).await.unwrap().is_some());
    }
}

#[test]
fn an_export_walks_the_ids() {
    let temp = Temp::new();
    drop(temp.open());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sqlite/sql");
    let read = |name| std::fs::read_to_string(format!("{folder}/{name}.sql")).unwrap();
    let plan = plan(&temp.raw(), &(read("run") + &read("export_runs")));
    assert!(plan.contains("INDEX onward_runs_id (id>?)"), "{plan}");
    assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
}

#[test]
fn a_count_of_ends_walks_their_index() {
    let temp = Temp::new();
    drop(temp.open());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sqlite/sql/look_ends.sql");
    let plan = plan(&temp.raw(), &std::fs::read_to_string(path).unwrap());
    let walk = "COVERING INDEX onward_runs_finished (state=? AND (finished_at,id)>(?,?) AND \
                finished_at<?)";
    assert!(plan.contains(walk), "{plan}");
    assert!(!plan.contains("SCAN onward_runs"), "{plan}");
}

#[test]
fn hot_statements_walk_their_own_indexes() {
    let temp = Temp::new();
    drop(temp.open());
    let conn = temp.raw();
    let plans = [
        ("claim_queued", "onward_runs_queued"),
        ("claim_suspect", "onward_runs_suspect"),
        ("claim_kept", "onward_runs_kept"),
        ("claim_kept_builds", "onward_runs_kept"),
        ("sweep_late", "onward_runs_late"),
        ("claim_suspects", "onward_runs_suspect"),
        ("claim_again", "onward_runs_running"),
        ("claim_marks", "onward_runs_marked"),
        ("next_due", "onward_runs_waiting"),
        ("wake", "onward_runs_waiting"),
        ("leave_runs", "onward_runs_running"),
        ("renew_held", "onward_runs_running"),
        ("sweep_holder", "onward_runs_running"),
        ("sweep_held", "onward_runs_running"),
        ("sweep_stuck", "onward_runs_stuck"),
        ("sweep_workers", "onward_workers_lost"),
        ("sweep_stuck_builds", "onward_runs_stuck"),
        ("prune_old", "onward_runs_finished"),
        ("record_fence", "onward_runs_id"),
        ("settle_fence", "onward_runs_id"),
        ("record_same", "onward_records_step"),
        ("record_clash", "onward_records_step"),
        ("claim_history", "onward_records_step"),
        ("history", "onward_records_step"),
        ("sweep_progress", "onward_records_step"),
        ("retry_void", "onward_records"),
        ("export_duplicates", "onward_duplicates_run"),
        ("claim_running", "onward_runs_slots"),
        ("claim_lane_running", "onward_runs_slots"),
        ("claim_lane_after", "onward_runs_lanes"),
        ("claim_lane_first", "onward_runs_lanes"),
        ("claim_laneless", "onward_runs_laneless"),
        ("start_gathered_over", "onward_gathered_at"),
    ];
    for (name, index) in plans {
        let path = format!("{}/src/store/sqlite/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        let plan = plan(&conn, &std::fs::read_to_string(path).unwrap());
        assert!(plan.contains(index), "{name}:\n{plan}");
        // Only the numbers of one run's history are sorted; the bodies are looked up for a page alone.
        let by_number = plan.contains("SEARCH r USING INTEGER PRIMARY KEY");
        assert!(name == "history" && by_number || !plan.contains("TEMP B-TREE"), "{name}:\n{plan}");
        for scan in plan.lines().filter(|line| line.contains("SCAN") && !line.ends_with("SCAN p")) {
            // A partial index walked from its end is no scan of the runs.
            assert!(scan.contains(index), "{name}:\n{plan}");
        }
    }
}

/// Statements that read a table of runs or their rows from end to end, or a partial index of them, and why they
/// may.
///
/// Each walks one index and no table: that of runs whose children are to be asked, which are few; that of
/// suspects, until the first; and, for people, those of what is queued and of all states.
const SCANS: [(&str, &str); 7] = [
    ("cascade_back", "onward_runs_cascades"),
    ("cascade_children", "onward_runs_cascades"),
    ("cascade_done", "onward_runs_cascades"),
    ("claim_suspects", "onward_runs_suspect"),
    ("history", "SCAN p"),
    ("stats_queues", "INDEX onward_runs_"),
    ("stats_states", "INDEX onward_runs_"),
];

/// Statements whose beginning alone names no row; the others are whole, or say in their comment what they
/// follow.
const BEGINNINGS: [&str; 3] = ["key", "look_key", "run"];

/// A list, whatever it is filtered by, walks one index, down the ids where it can. Only the runs that have a tag,
/// and those that failed or were cancelled, are put in order.
#[test]
fn every_list_walks_an_index() {
    let temp = Temp::new();
    drop(temp.open());
    let conn = temp.raw();
    let text = || Some("x".to_owned());
    let states = [vec![], vec![RunState::Failed], vec![RunState::Completed, RunState::Queued]];
    for (bits, states) in (0..128).flat_map(|bits| states.iter().map(move |it| (bits, it))) {
        let set = |bit: u32| bits & (1 << bit) != 0;
        let filter = Filter {
            workflow: text().filter(|_| set(0)),
            states: states.clone(),
            queue: text().filter(|_| set(1)),
            key: text().filter(|_| set(2)),
            tags: text().filter(|_| set(3)).map(|tag| (tag.clone(), tag)).into_iter().collect(),
            parent: Some(RunId::new()).filter(|_| set(4)),
            created_from: Some(Timestamp::from_millis(1)).filter(|_| set(5)),
            created_before: None,
        };
        let before = Some(RunId::new()).filter(|_| set(6));
        let query = Query { filter, before, ..Query::default() };
        let plan = plan(&conn, &SqliteStore::list_statement(&query));
        let sorts = set(3) || *states == [RunState::Failed];
        assert!(sorts || !plan.contains("TEMP B-TREE"), "{query:?}:\n{plan}");
        for scan in plan.lines().filter(|line| line.contains("SCAN")) {
            assert!(scan.ends_with("INDEX onward_runs_id"), "{query:?}:\n{plan}");
        }
    }
}

/// Every statement, whether somebody thought of it or not, finds its rows by an index.
#[test]
fn no_statement_reads_a_table_of_runs_from_end_to_end() {
    let temp = Temp::new();
    drop(temp.open());
    let conn = temp.raw();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sqlite/sql");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert!(names.len() > 100);
    for name in names.iter().filter(|name| !BEGINNINGS.contains(&name.as_str())) {
        let text = sql_of(name);
        let follows = text.split_once("ollows ").and_then(|(_, rest)| rest.split_once(".sql"));
        let whole = follows.map_or(String::new(), |(before, _)| sql_of(before)) + &text;
        let plan = plan(&conn, &whole);
        let allowed = SCANS.iter().find(|(scanning, _)| scanning == name).map(|(_, by)| *by);
        for line in plan.lines().filter(|line| line.starts_with("SCAN")) {
            let of_runs = ["runs", "inputs", "outputs", "records", "signals", "attempts", "tags"]
                .iter()
                .chain(&["keys", "duplicates", "log"])
                .any(|table| line.contains(&format!("onward_{table}")));
            // One with another name in its statement is told by the index that it uses, or by none.
            let of_alias = line.split(' ').nth(1).is_some_and(|table| table.len() < 4);
            let is_allowed = allowed.is_some_and(|by| line.contains(by));
            assert!(is_allowed || !(of_runs || of_alias), "{name}:\n{plan}");
        }
    }
}

fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("explain query plan {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut plan = String::new();
    while let Some(row) = rows.next().unwrap() {
        plan += &row.get::<_, String>(3).unwrap();
        plan += "\n";
    }
    plan
}

#[tokio::test]
async fn finished_runs_cost_a_claim_nothing() {
    assert_eq!(claim_steps(1_000, 0).await, claim_steps(100_000, 0).await);
}

#[tokio::test]
async fn runs_that_a_build_is_kept_off_cost_its_claim_nothing() {
    assert_eq!(claim_steps(0, 10).await, claim_steps(0, 10_000).await);
}

/// A claim from queues without limits reads one small table more, and nothing else that is there for
/// those with: however much is queued, running and granted there, its statements make the same steps.
#[tokio::test]
async fn queues_without_limits_pay_nothing_for_those_with() {
    assert_eq!(steps_beside_a_limited_queue(10).await, steps_beside_a_limited_queue(10_000).await);
    let temp = Temp::new();
    drop(temp.open());
    for name in ["claim_queued", "claim_suspect", "claim_kept", "claim_suspects", "claim_again"] {
        let plan = plan(&temp.raw(), &sql_of(name));
        for index in ["slots", "lanes", "laneless", "grants", "queues"] {
            assert!(!plan.contains(index), "{name}:\n{plan}");
        }
    }
}

/// The steps of a claim from the default queue, where another queue has every limit and so many runs
/// queued, as many running and as many grants.
async fn steps_beside_a_limited_queue(runs: i64) -> Vec<(&'static str, i32)> {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await.as_u128().to_be_bytes();
    started(&store).await;
    let rate = Some(onward::Rate { count: 10, period_ms: 1_000 });
    let limits =
        onward::QueueLimits { concurrency: Some(1), per_worker: Some(1), per_lane: Some(1), rate };
    let put = PutQueue { name: "limited".to_owned(), limits };
    store.queues().unwrap().put_queue(put).await.unwrap();
    let raw = temp.raw();
    for state in ["queued", "running"] {
        raw.execute(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
             insert into onward_runs (id, state, attempt, wakes, crashes, priority, due_at,
                 workflow, queue, created_at, duplicates, lane)
             select randomblob(16), ?2, 1, 0, 0, 0, i, 'index', 'limited', i, 0,
                 case when i % 2 then 'acme' end
             from n",
            rusqlite::params![runs, state],
        )
        .unwrap();
    }
    raw.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
         insert into onward_grants (queue, at, count) select 'limited', i, 1 from n",
        [runs],
    )
    .unwrap();
    let statements: [(&str, &[&dyn ToSql]); 7] = [
        ("queue", &[]),
        ("claim_again", &[&worker, &1]),
        ("claim_queued", &[&"default", &WORKFLOW, &100]),
        ("claim_suspect", &[&"default", &WORKFLOW, &100]),
        ("claim_kept_builds", &[&""]),
        ("claim_suspects", &[]),
        ("claim_marks", &[&worker]),
    ];
    statements.map(|(name, params)| (name, steps(&raw, name, params))).to_vec()
}

fn sql_of(name: &str) -> String {
    let path = format!("{}/src/store/sqlite/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// The steps that SQLite's machine makes for each statement of a claim and a sweep, in a file with
/// so many finished runs, and so many queued ones that are kept off a build.
async fn claim_steps(finished: i64, kept: i64) -> Vec<(&'static str, i32)> {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await.as_u128().to_be_bytes();
    started(&store).await;
    let raw = temp.raw();
    raw.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
         insert into onward_runs (id, state, attempt, wakes, crashes, priority, finished_at,
             workflow, queue, created_at, duplicates)
         select randomblob(16), 'completed', 1, 0, 0, 0, i, 'index', 'default', i, 0 from n",
        [finished],
    )
    .unwrap();
    raw.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
         insert into onward_runs (id, state, attempt, wakes, crashes, priority, due_at,
             workflow, queue, created_at, duplicates, stuck_builds)
         select randomblob(16), 'queued', 1, 0, 0, 0, i, 'index', 'default', i, 0, '[\"b1\"]' from n",
        [kept],
    )
    .unwrap();
    let far = i64::MAX;
    let statements: [(&str, &[&dyn ToSql]); 14] = [
        ("wake", &[&far, &100]),
        ("claim_again", &[&worker, &1]),
        ("claim_queued", &[&"default", &WORKFLOW, &100]),
        ("claim_suspect", &[&"default", &WORKFLOW, &100]),
        ("claim_kept_builds", &[&""]),
        ("sweep_late", &[&far, &100]),
        ("claim_suspects", &[]),
        ("claim_marks", &[&worker]),
        ("next_due", &[]),
        ("sweep_expired", &[&0, &worker]),
        ("sweep_holder", &[&[0_u8; 0]]),
        ("sweep_held", &[&worker, &100]),
        ("sweep_stuck_builds", &[&""]),
        ("sweep_workers", &[&0, &100]),
    ];
    statements.map(|(name, params)| (name, steps(&raw, name, params))).to_vec()
}

fn steps(conn: &Connection, name: &str, params: &[&dyn ToSql]) -> i32 {
    let mut statement = conn.prepare(&sql_of(name)).unwrap();
    let mut rows = statement.query(params).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    statement.get_status(StatementStatus::VmStep)
}
