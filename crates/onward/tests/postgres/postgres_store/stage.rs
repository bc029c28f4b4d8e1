//! What a test of this store is made of: a schema, stores in it, a connection behind their backs,
//! and runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onward::store::*;
use onward::{
    CatchUp, Entry, Json, OnConflict, Overlap, Record, RunId, ScheduleSpec, TestClock, Timestamp,
    WorkerId,
};
use tokio_postgres::Client;

use crate::database::{self, Schema};

/// How long a test waits for what must come.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) const WORKFLOW: &str = "index";

/// One schema. The connections of its stores bear its name.
pub(crate) struct Stage {
    schema: Schema,
    /// A database for this schema alone: old snapshots are of a database.
    apart: Option<Database>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { schema: Schema::new(), apart: None }
    }

    pub(crate) async fn apart() -> Self {
        Self { schema: Schema::new(), apart: Some(Database::new().await) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.schema.0
    }

    /// The database's URL.
    pub(crate) fn base(&self) -> String {
        self.apart.as_ref().map_or_else(database::url, Database::url)
    }

    /// A URL that puts a store there whose connections bear some name.
    pub(crate) fn url_as(&self, name: &str) -> String {
        let options = format!("schema={}&application_name={name}", self.name());
        with(&self.base(), &options)
    }

    pub(crate) fn url(&self) -> String {
        self.url_as(self.name())
    }

    /// A store whose clock is the database's.
    pub(crate) async fn open(&self) -> Arc<PostgresStore> {
        let options = PostgresOptions { pool_size: 4, ..PostgresOptions::default() };
        Arc::new(PostgresStore::open_with(&self.url(), options).await.unwrap())
    }

    /// A store whose transactions look for a deadlock after they have waited this long.
    pub(crate) async fn open_looking_for_deadlocks_after(
        &self,
        patience: Duration,
    ) -> Arc<PostgresStore> {
        let setting = format!("options=-c%20deadlock_timeout%3D{}ms", patience.as_millis());
        let options = PostgresOptions { pool_size: 4, ..PostgresOptions::default() };
        Arc::new(PostgresStore::open_with(&with(&self.url(), &setting), options).await.unwrap())
    }

    /// A store whose clock the test moves.
    pub(crate) async fn open_at(&self, clock: &TestClock) -> Arc<PostgresStore> {
        let clock: Arc<dyn onward::Clock> = Arc::new(clock.clone());
        let options =
            PostgresOptions { pool_size: 4, clock: Some(clock), ..PostgresOptions::default() };
        Arc::new(PostgresStore::open_with(&self.url(), options).await.unwrap())
    }

    /// A connection behind the stores' backs, in their schema.
    pub(crate) async fn raw(&self) -> Client {
        let client = database::connect_to(&self.base()).await;
        client.batch_execute(&format!("set search_path = {}", self.name())).await.unwrap();
        client
    }

    /// Returns when so many connections of the stores wait for a lock.
    pub(crate) async fn waiting(&self, count: i64) {
        self.waiting_as("wait_event_type = 'Lock'", count).await;
    }

    /// Returns when so many connections of the stores wait for a row that a transaction holds.
    pub(crate) async fn waiting_for_a_row(&self, count: i64) {
        let held = "wait_event_type = 'Lock' and wait_event in ('transactionid', 'tuple')";
        self.waiting_as(held, count).await;
    }

    async fn waiting_as(&self, condition: &str, count: i64) {
        let raw = self.raw().await;
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name = $1 and {condition}"
        );
        until(&format!("{count} wait for a lock"), async || {
            raw.query_one(&sql, &[&self.name()]).await.unwrap().get::<_, i64>(0) == count
        })
        .await;
    }
}

/// A database of its own, dropped at its end.
pub(crate) struct Database(String);

impl Database {
    pub(crate) async fn new() -> Self {
        let name = format!("test_{:032x}", RunId::new().as_u128());
        let raw = database::connect().await;
        raw.batch_execute(&format!("create database {name}")).await.unwrap();
        Self(name)
    }

    /// With a setting for all its connections.
    pub(crate) async fn with(setting: &str) -> Self {
        let database = Self::new().await;
        let sql = format!("alter database {} set {setting}", database.0);
        database::connect().await.batch_execute(&sql).await.unwrap();
        database
    }

    pub(crate) fn url(&self) -> String {
        let url = database::url();
        let (base, _) = url.rsplit_once('/').unwrap();
        format!("{base}/{}", self.0)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        database::execute_apart(format!("drop database {} with (force)", self.0));
    }
}

/// Returns when the condition holds, which must be soon.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + SOON;
    while !condition().await {
        assert!(Instant::now() < end, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What must come soon.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.unwrap()
}

/// Waits until the server has told what it counted. Before 15 a process of its own gathers the counts, and
/// tells them twice a second.
pub(crate) async fn counts_told(raw: &Client) {
    let gathers = "select current_setting('server_version_num')::integer < 150000";
    if raw.query_one(gathers, &[]).await.unwrap().get(0) {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
}

/// A URL with one more option.
pub(crate) fn with(url: &str, option: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{option}")
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(crate) fn new_run() -> NewRun {
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

/// A run that has a key.
pub(crate) fn keyed_run(key: &str) -> NewRun {
    let run = new_run();
    let key = NewKey {
        key: key.to_owned(),
        fingerprint: run.input.fingerprint(),
        ttl_ms: None,
        on_conflict: OnConflict::Existing,
        gather: None,
    };
    NewRun { key: Some(key), ..run }
}

/// A schedule that is due.
pub(crate) fn hourly(name: &str) -> PutSchedule {
    PutSchedule {
        name: name.to_owned(),
        spec: ScheduleSpec::Cron { cron: "0 * * * *".to_owned(), time_zone: "UTC".to_owned() },
        workflow: WORKFLOW.to_owned(),
        input: json("1"),
        queue: "default".to_owned(),
        lane: None,
        priority: 0,
        timeout_ms: None,
        tags: BTreeMap::new(),
        overlap: Overlap::Skip,
        catch_up: CatchUp::One,
        next_at: Some(Timestamp::from_millis(1)),
    }
}

pub(crate) fn claim_of(worker: WorkerId, ticket: i64) -> Claim {
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

pub(crate) async fn joined(store: &PostgresStore) -> WorkerId {
    let id = WorkerId::new();
    let worker = NewWorker {
        id,
        build: "b1".to_owned(),
        place: "here".to_owned(),
        queues: vec!["default".to_owned()],
        workflows: vec![WORKFLOW.to_owned()],
        lease_ms: 10_000,
        concurrency: 8,
    };
    store.join(worker).await.unwrap();
    id
}

pub(crate) async fn started(store: &PostgresStore) -> RunId {
    start(store, new_run()).await
}

pub(crate) async fn start(store: &PostgresStore, run: NewRun) -> RunId {
    store.start(vec![run]).await.unwrap().remove(0).unwrap().run
}

pub(crate) async fn claimed(store: &PostgresStore, worker: WorkerId, ticket: i64) -> Lease {
    store.claim(claim_of(worker, ticket)).await.unwrap().runs[0].lease
}

/// Leases of runs whose writes go through one lane: the store chooses it by the last bit.
pub(crate) async fn one_lane<const N: usize>(
    store: &PostgresStore,
    worker: WorkerId,
) -> [Lease; N] {
    let even = std::iter::repeat_with(new_run).filter(|run| run.id.as_u128() % 2 == 0);
    store.start(even.take(N).collect()).await.unwrap();
    let claims = store.claim(claim_of(worker, 1)).await.unwrap().runs;
    let leases: Vec<Lease> = claims.into_iter().map(|claimed| claimed.lease).collect();
    leases.try_into().unwrap()
}

pub(crate) fn done(store: &PostgresStore, seq: u64, step: &str) -> Record {
    Record::new(seq, step, Entry::Done(json("1")), store.clock().now())
}

pub(crate) fn sweep_of(worker: WorkerId) -> Sweep {
    Sweep { worker, expired: ExpiredLeases::Take }
}

/// A run's id as SQL has it.
pub(crate) fn literal(run: RunId) -> String {
    format!("'{:032x}'::uuid", run.as_u128())
}

/// Adds a record of this step in an open transaction, so that whoever writes that step waits.
pub(crate) async fn hold_step(raw: &Client, run: RunId, step: &str) {
    let run = literal(run);
    let sql = format!(
        "begin;
         insert into records (run, seq, step, slot, kind, try_number, attempt, began_at, at,
             foreign_await)
         values ({run}, 99, '{step}', 0, 'fired', 1, 1, 0, 0, false)"
    );
    raw.batch_execute(&sql).await.unwrap();
}

/// Adds the trace of an attempt in an open transaction, so that whoever ends it waits.
pub(crate) async fn hold_attempt(raw: &Client, lease: Lease) {
    let (run, attempt) = (literal(lease.run), lease.attempt);
    let sql = format!("begin; insert into attempts values ({run}, {attempt}, 'test', null)");
    raw.batch_execute(&sql).await.unwrap();
}

pub(crate) async fn let_go(raw: &Client) {
    raw.batch_execute("rollback").await.unwrap();
}
