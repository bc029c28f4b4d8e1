//! Rows that cannot be read: damaged, or of a kind that only a newer build knows. Each harms only what it is about.
//!
//! A table of damages to a run, times what that run is to another, on SQLite and on Postgres; then the rows that
//! are no runs. After each, everybody else is served. And a line goes on once its bad run can be read again.

mod line;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use onward::conformance::stage::*;
use onward::conformance::{Harness, Stage};
use onward::limits::SCHEDULE_GRACE;
use onward::store::*;
use onward::{
    CatchUp, Entry, Json, LatestRun, OnConflict, Overlap, QueueLimits, RunId, RunState,
    ScheduleSpec, TestClock, Waits,
};

use crate::database::{Schema, connect, open};

/// What makes a run one that cannot be read.
const DAMAGES: [&str; 4] = [
    "notes = '['",
    "state = 'hovering'",
    "waits_for = '{\"for\":\"moonlight\"}'",
    "stuck_builds = '['",
];

/// What a bad run is to another.
const ROLES: [&str; 9] = [
    "queued beside it",
    "in the middle of a line whose first ends",
    "in the middle of a line whose first goes on as another",
    "ahead of one that is cancelled before its turn",
    "latest of a schedule",
    "holder of the key of a schedule's time",
    "parent of one that is retried",
    "child of one that is retried",
    "child of one that is cancelled",
];

/// How to reach behind a store's back.
enum Raw {
    Sqlite(PathBuf),
    Postgres(tokio_postgres::Client),
}

thread_local! {
    /// The way behind the store that was opened last: a stage keeps its harness to itself.
    static RAW: RefCell<Option<Raw>> = const { RefCell::new(None) };
}

impl Raw {
    /// Changes one row.
    async fn change(&self, table: &str, set: &str, which: &str) {
        let changed = match self {
            Raw::Sqlite(path) => {
                let sql = format!("update onward_{table} set {set} where {which}");
                rusqlite::Connection::open(path).unwrap().execute(&sql, []).unwrap() as u64
            }
            Raw::Postgres(client) => {
                let sql = format!("update {table} set {set} where {which}");
                client.execute(&sql, &[]).await.unwrap()
            }
        };
        assert_eq!(changed, 1, "{table} {set} {which}");
    }

    async fn damage(&self, run: RunId, set: &str) {
        self.change("runs", set, &self.which(run)).await;
    }

    fn which(&self, run: RunId) -> String {
        match self {
            Raw::Sqlite(_) => format!("id = x'{:032x}'", run.as_u128()),
            Raw::Postgres(_) => format!("id = '{run}'"),
        }
    }

    /// The text in a column of a run.
    async fn read(&self, run: RunId, column: &str) -> Option<String> {
        let which = self.which(run);
        match self {
            Raw::Sqlite(path) => {
                let sql = format!("select {column} from onward_runs where {which}");
                let conn = rusqlite::Connection::open(path).unwrap();
                conn.query_row(&sql, [], |row| row.get(0)).unwrap()
            }
            Raw::Postgres(client) => {
                let sql = format!("select {column} from runs where {which}");
                client.query_one(&sql, &[]).await.unwrap().get(0)
            }
        }
    }

    /// Puts a text that was read there back.
    async fn write(&self, run: RunId, column: &str, text: Option<&str>) {
        let text = text.map_or("null".to_owned(), |text| format!("'{text}'"));
        self.damage(run, &format!("{column} = {text}")).await;
    }
}

struct Sqlite(
    Arc<SqliteStore>,
    #[allow(dead_code, reason = "it is removed with it")] tempfile::TempDir,
);

impl Harness for Sqlite {
    async fn open(clock: TestClock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("onward.db");
        let options = SqliteOptions { clock: Arc::new(clock), ..SqliteOptions::default() };
        let store = SqliteStore::open_with(&path, options).unwrap();
        RAW.set(Some(Raw::Sqlite(path)));
        Self(Arc::new(store), folder)
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

struct Postgres(Arc<PostgresStore>, #[allow(dead_code, reason = "it is removed with it")] Schema);

impl Harness for Postgres {
    async fn open(clock: TestClock) -> Self {
        let schema = Schema::lent();
        let store = open(&schema, &clock).await;
        let client = connect().await;
        client.batch_execute(&format!("set search_path = {}", schema.0)).await.unwrap();
        RAW.set(Some(Raw::Postgres(client)));
        Self(store, schema)
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

async fn opened<H: Harness>() -> (Stage, Raw) {
    let stage = Stage::open::<H>().await;
    (stage, RAW.take().unwrap())
}

#[tokio::test]
async fn a_bad_run_harms_only_itself_on_sqlite() {
    bad_runs::<Sqlite>().await;
}

#[tokio::test]
async fn a_bad_run_harms_only_itself_on_postgres() {
    bad_runs::<Postgres>().await;
}

async fn bad_runs<H: Harness>() {
    for damage in DAMAGES {
        for role in ROLES {
            let (stage, raw) = opened::<H>().await;
            let worker = stage.worker().await;
            println!("{damage}: {role}");
            played(&stage, &raw, &worker, (role, damage)).await;
            others_are_served(&stage, &worker).await;
        }
    }
}

/// Damages a run in its role, and does to the other what has to do with it.
async fn played(stage: &Stage, raw: &Raw, worker: &Worker, (role, damage): (&str, &str)) {
    match role {
        "queued beside it" => {
            let bad = stage.start(new_run()).await;
            raw.damage(bad, damage).await;
        }
        "in the middle of a line whose first ends"
        | "in the middle of a line whose first goes on as another" => {
            let [ahead, bad, _] = in_line(stage).await;
            let ahead = worker.take(ahead).await;
            raw.damage(bad, damage).await;
            let (run, undelivered) = (RunId::new(), Vec::new());
            let end = match role {
                "in the middle of a line whose first ends" => End::Completed(json(1)),
                _ => End::Continued { run, input: json(2), undelivered },
            };
            stage.settle(ahead, end).await.unwrap();
        }
        "ahead of one that is cancelled before its turn" => {
            let [bad, middle, last] = in_line(stage).await;
            worker.take(bad).await;
            raw.damage(bad, damage).await;
            stage.store.cancel(middle).await.unwrap();
            assert_eq!(stage.state(middle).await, RunState::Cancelled);
            let waits_for = stage.run(last).await.waits_for;
            assert!(
                matches!(waits_for, Some(Waits::Behind { run, .. }) if run == bad),
                "{waits_for:?}"
            );
        }
        "latest of a schedule" | "holder of the key of a schedule's time" => {
            of_a_schedule(stage, raw, role, damage).await
        }
        "child of one that is cancelled" => {
            let parent = stage.running(worker).await;
            let bad = stage.start(child_of(parent)).await;
            raw.damage(bad, damage).await;
            stage.store.cancel(parent.run).await.unwrap();
            while worker.sweep().await.more {}
        }
        _ => of_a_family(stage, raw, worker, (role, damage)).await,
    }
}

/// Three runs, each of which waits for the end of the one before.
async fn in_line(stage: &Stage) -> [RunId; 3] {
    let schedules = stage.store.schedules().unwrap();
    let (overlap, catch_up) = (Overlap::BufferOne, CatchUp::All { max: 9 });
    let put = PutSchedule { overlap, catch_up, ..every_second(stage, "line") };
    let schedule = schedules.put_schedule(put).await.unwrap();
    let fire = fire(stage, &schedule, &[1, 2, 3]);
    let [first, second, third] = [0, 1, 2].map(|number| fire.occurrences[number].run);
    // Missed times may wait one behind the other.
    stage.clock.advance(SCHEDULE_GRACE * 2);
    let fired = schedules.fire_schedule(fire).await.unwrap();
    let behind = |run, behind| Occurred::Buffered { run, behind };
    let expected = [Occurred::Started { run: first }, behind(second, first), behind(third, second)];
    assert_eq!(fired, Fired::Done(expected.to_vec()));
    [first, second, third]
}

fn fire(stage: &Stage, schedule: &onward::Schedule, numbers: &[u64]) -> Fire {
    let occurrence = |number: &u64| NewOccurrence {
        at: stage.now(),
        run: RunId::new(),
        key: format!("{}/{number}", schedule.name),
        input: None,
    };
    Fire {
        name: schedule.name.clone(),
        generation: schedule.generation,
        advance: Some(Advance { seen_at: schedule.next_at, next_at: Some(stage.in_ms(1_000)) }),
        occurrences: numbers.iter().map(occurrence).collect(),
        caller: "test".to_owned(),
    }
}

fn child_of(lease: Lease) -> NewRun {
    let parent = NewParent { lease, step: STEP.to_owned(), detached: false };
    NewRun { parent: Some(parent), ..new_run() }
}

const STEP: &str = "$child/ship";

/// A run of a schedule, and the next firing.
async fn of_a_schedule(stage: &Stage, raw: &Raw, role: &str, damage: &str) {
    let schedules = stage.store.schedules().unwrap();
    let schedule = schedules.put_schedule(every_second(stage, "tick")).await.unwrap();
    let first = fire(stage, &schedule, &[1]);
    let bad = first.occurrences[0].run;
    schedules.fire_schedule(first).await.unwrap();
    raw.damage(bad, damage).await;
    let seen = schedules.get_schedule("tick".to_owned()).await.unwrap().unwrap();
    assert!(matches!(&seen.latest, Some(LatestRun { key, .. }) if key == "tick/1"));
    let number = if role == "latest of a schedule" { 2 } else { 1 };
    let fired = schedules.fire_schedule(fire(stage, &seen, &[number])).await.unwrap();
    let Fired::Done(occurred) = fired else { panic!("{role}: {fired:?}") };
    match number {
        2 => assert!(matches!(occurred[0], Occurred::Started { .. }), "{occurred:?}"),
        _ => assert_eq!(occurred, [Occurred::Existing { run: bad }]),
    }
}

/// A run and its child of which one is bad and the other is retried.
async fn of_a_family(stage: &Stage, raw: &Raw, worker: &Worker, (role, damage): (&str, &str)) {
    let parent = stage.running(worker).await;
    let child = worker.take(stage.start(child_of(parent)).await).await;
    stage.record(child, vec![failed(1, "pack")]).await.unwrap();
    stage.settle(child, failed_at("pack")).await.unwrap();
    if role == "parent of one that is retried" {
        raw.damage(parent.run, damage).await;
        assert_eq!(stage.store.retry(child.run).await.unwrap().state, RunState::Queued);
        return;
    }
    let told = stage.store.inbox(parent.run, 0).await.unwrap().signals.remove(0);
    let arrived = entry(1, &told.recorded_as(), Entry::Arrived(told.body));
    stage.record(parent, vec![arrived]).await.unwrap();
    stage.settle(parent, failed_at(STEP)).await.unwrap();
    raw.damage(child.run, damage).await;
    assert_eq!(stage.store.retry(parent.run).await.unwrap().state, RunState::Queued);
}

fn every_second(stage: &Stage, name: &str) -> PutSchedule {
    PutSchedule {
        name: name.to_owned(),
        spec: ScheduleSpec::Every { every_ms: 1_000, anchor: stage.now() },
        workflow: WORKFLOW.to_owned(),
        input: json(1),
        queue: QUEUE.to_owned(),
        lane: None,
        priority: 0,
        timeout_ms: None,
        tags: Default::default(),
        overlap: Overlap::Skip,
        catch_up: CatchUp::One,
        next_at: Some(stage.now()),
    }
}

/// All that others do goes on.
async fn others_are_served(stage: &Stage, worker: &Worker) {
    worker.renew().await.unwrap();
    let good = stage.start(new_run()).await;
    let claims = worker.claim(20).await;
    assert!(ids(&claims).contains(&good), "{:?}", ids(&claims));
    for claimed in claims.runs {
        assert!(!stage.store.inbox(claimed.run.id, 0).await.unwrap().paused);
        stage.settle(claimed.lease, End::Completed(json(1))).await.unwrap();
    }
    assert_eq!(stage.state(good).await, RunState::Completed);
    stage.store.renew(worker.id).await.unwrap();
    worker.sweep().await;
    let put = PutSchedule { next_at: Some(stage.now()), ..every_second(stage, "tock") };
    let schedules = stage.store.schedules().unwrap();
    schedules.put_schedule(put).await.unwrap();
    let due = schedules.due_schedules(None, 10).await.unwrap();
    assert!(due.schedules.iter().any(|schedule| schedule.name == "tock"));
    let cancelled = stage.start(new_run()).await;
    stage.store.cancel(cancelled).await.unwrap();
    stage.pass(5);
    let prune = Prune::older_than(std::time::Duration::ZERO);
    assert!(stage.store.prune(prune).await.unwrap().runs >= 1);
    stage.store.stats().await.unwrap();
    stage.store.leave(worker.id).await.unwrap();
}

#[tokio::test]
async fn a_bad_row_of_another_kind_harms_only_itself_on_sqlite() {
    other_rows::<Sqlite>().await;
}

#[tokio::test]
async fn a_bad_row_of_another_kind_harms_only_itself_on_postgres() {
    other_rows::<Postgres>().await;
}

async fn other_rows<H: Harness>() {
    bad_record::<H>().await;
    bad_schedule::<H>().await;
    bad_signal_of_a_running_run::<H>().await;
    bad_queue::<H>().await;
}

async fn bad_record<H: Harness>() {
    let (stage, raw) = opened::<H>().await;
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    stage.settle(lease, End::Released).await.unwrap();
    raw.change("records", "kind = 'guess'", "seq = 1").await;
    others_are_served(&stage, &worker).await;
    assert!(is_set_aside(&stage, lease.run).await);
}

async fn is_set_aside(stage: &Stage, run: RunId) -> bool {
    let waits_for = stage.run(run).await.waits_for;
    matches!(waits_for, Some(Waits::Stuck { code, .. }) if code == "corrupt_record")
}

async fn bad_schedule<H: Harness>() {
    for damage in ["spec = '['", "overlap = 'sometimes'", "catch_up = 'perhaps'"] {
        let (stage, raw) = opened::<H>().await;
        let worker = stage.worker().await;
        let schedules = stage.store.schedules().unwrap();
        schedules.put_schedule(every_second(&stage, "bad")).await.unwrap();
        raw.change("schedules", damage, "name = 'bad'").await;
        others_are_served(&stage, &worker).await;
        let page = schedules.list_schedules(None, 10).await.unwrap();
        let names: Vec<_> = page.schedules.iter().map(|schedule| schedule.name.as_str()).collect();
        assert_eq!((names, page.unreadable), (vec!["tock"], vec!["bad".to_owned()]));
    }
}

/// It hears of what came before, and of its marks; and does not wait for ever for what comes after.
async fn bad_signal_of_a_running_run<H: Harness>() {
    let (stage, raw) = opened::<H>().await;
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    for key in ["a", "b", "c"] {
        let body = Json::of(key).unwrap();
        let signal = NewSignal {
            run: lease.run,
            name: "go".to_owned(),
            step: "$signal/go".to_owned(),
            key: key.to_owned(),
            fingerprint: body.fingerprint(),
            body,
        };
        stage.store.signal(signal).await.unwrap();
    }
    let damage = match raw {
        Raw::Sqlite(_) => "fingerprint = x'01'",
        Raw::Postgres(_) => "fingerprint = '\\x01'",
    };
    raw.change("signals", damage, "no = 2").await;
    let inbox = stage.store.inbox(lease.run, 0).await.unwrap();
    assert_eq!(inbox.signals.iter().map(|signal| signal.no).collect::<Vec<_>>(), [1]);
    assert!(matches!(inbox.rest, InboxRest::Unreadable(_)), "{inbox:?}");
    stage.store.cancel(lease.run).await.unwrap();
    let inbox = stage.store.inbox(lease.run, 1).await.unwrap();
    assert!(inbox.cancel_asked && inbox.signals.is_empty(), "{inbox:?}");
    assert!(matches!(inbox.rest, InboxRest::Unreadable(_)), "{inbox:?}");
    stage.settle(lease, End::Released).await.unwrap();
    others_are_served(&stage, &worker).await;
    assert!(is_set_aside(&stage, lease.run).await);
}

/// Nothing of it is claimed, since its limits may be any; they can be set anew.
async fn bad_queue<H: Harness>() {
    let (stage, raw) = opened::<H>().await;
    let worker = stage.worker().await;
    let queues = stage.store.queues().unwrap();
    let name = "slow".to_owned();
    let limits = QueueLimits { concurrency: Some(1), ..QueueLimits::default() };
    queues.put_queue(PutQueue { name: name.clone(), limits }).await.unwrap();
    let held = stage.start(NewRun { queue: name.clone(), ..new_run() }).await;
    raw.change("queues", "concurrency = -1", "name = 'slow'").await;
    let both = |limit| Claim {
        queues: vec![QUEUE.to_owned(), "slow".to_owned()],
        ..worker.next_claim(limit)
    };
    let good = stage.start(new_run()).await;
    let claims = stage.store.claim(both(9)).await.unwrap();
    assert_eq!(ids(&claims), [good]);
    assert!(queues.get_queue(name.clone()).await.unwrap().unwrap().paused_at.is_some());
    queues.list_queues(None, 10).await.unwrap();
    others_are_served(&stage, &worker).await;
    let worker = stage.worker().await;
    queues.put_queue(PutQueue { name: name.clone(), limits }).await.unwrap();
    queues.resume_queue(name.clone()).await.unwrap();
    let claim = Claim { queues: vec![name], ..worker.next_claim(9) };
    assert_eq!(ids(&stage.store.claim(claim).await.unwrap()), [held]);
}
