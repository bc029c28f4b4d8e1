//! A process that stops in the middle of a transaction, as under a debugger or on a suspended
//! machine.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onward::store::*;
use onward::{Code, WorkerId};
use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::stage::*;
use crate::relaunch;
use crate::seat::Seat;

const URL: &str = "ONWARD_TEST_STOPPED_URL";

/// The store's own limit for a transaction that waits for its client.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// What the process does that will be stopped: it settles in a transaction that asks questions.
async fn settle_and_be_stopped(url: &str) {
    let store = PostgresStore::open(url).await.unwrap();
    let worker = NewWorker {
        id: WorkerId::new(),
        build: "b1".to_owned(),
        place: "there".to_owned(),
        queues: vec![],
        workflows: vec![],
        lease_ms: 1,
        concurrency: 8,
    };
    let id = worker.id;
    store.join(worker).await.unwrap();
    let lease = claimed(&store, id, 1).await;
    let stuck = End::Stuck { code: Code::HistoryMismatch, detail: "x".to_owned(), wakes_seen: 0 };
    let settled = store.settle(lease, Settle::new(vec![done(&store, 1, "a")], stuck)).await;
    assert!(settled.is_err(), "{settled:?}");
}

/// Fails where a transaction holds the fence while its client thinks, or a row for as long as its
/// client is gone.
#[tokio::test]
async fn a_stopped_process_holds_up_no_sweep() {
    if let Ok(url) = std::env::var(URL) {
        return settle_and_be_stopped(&url).await;
    }
    let stage = Stage::new();
    let store = stage.open().await;
    let run = started(&store).await;
    let raw = stage.raw().await;
    hold_step(&raw, run, "a").await;
    let name = format!("stopped_{}", &stage.name()[24..]);
    let url = with(&stage.url_as(&name), "statement_timeout=60");
    let mut process = Process::start(&url);
    let other = stage.raw().await;
    until("the process waits for its record's place", async || {
        // For another transaction, and not for one of the locks that notifications take.
        let sql = "select count(*) from pg_stat_activity
                   where application_name = $1 and wait_event = 'transactionid'";
        other.query_one(sql, &[&name]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    process.signal("STOP");
    // Its first thread has to run to stop the others; on a busy machine they go on until then.
    until("the process is stopped", async || process.is_stopped()).await;
    let_go(&raw).await;

    let worker = joined(&store).await;
    let began = Instant::now();
    let mut taken = Vec::new();
    while taken.is_empty() {
        assert!(began.elapsed() < IDLE_MAX * 2, "the run is still held");
        let asked = Instant::now();
        taken = store.sweep(sweep_of(worker)).await.unwrap().taken;
        assert!(asked.elapsed() < Duration::from_secs(2), "a sweep waited {:?}", asked.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(taken, [run]);
    process.signal("CONT");
    assert!(process.0.wait().unwrap().success());
    let history = store.history(run, None, 10).await.unwrap();
    assert!(history.records.is_empty());
}

/// This test again, as the process that will be stopped. It ends with the test.
struct Process(Child);

impl Process {
    fn start(url: &str) -> Self {
        let mut command = relaunch::test(module_path!(), "a_stopped_process_holds_up_no_sweep");
        Self(command.env(URL, url).spawn().unwrap())
    }

    /// Whether every thread of it is stopped.
    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        threads.into_iter().all(|thread| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
        })
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process of the server that stands still until this is dropped.
struct Frozen(i32);

impl Frozen {
    fn new(pid: i32) -> Self {
        signal(pid, "STOP");
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

fn signal(pid: i32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Fails where a server that stands still takes a try of the step: the body is not at fault.
#[tokio::test]
async fn a_body_at_a_server_that_stands_still_meets_an_outage() {
    let cluster = Cluster::new("");
    let store = PostgresStore::open(&with(&cluster.url(), "statement_timeout=1")).await.unwrap();
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let (tell, told) = oneshot::channel();
    let tell = Arc::new(std::sync::Mutex::new(Some(tell)));
    let body: PostgresBody = Arc::new(move |db| {
        let tell = tell.lock().unwrap().take().unwrap();
        Box::pin(async move {
            let row = db.query_one("select pg_backend_pid()", &[]).await?;
            tell.send(Frozen::new(row.get(0))).ok();
            db.batch_execute("select 1").await?;
            unreachable!("the server stands still");
        })
    });
    let transact = Transact {
        follows: Vec::new(),
        lease,
        step: "pay".into(),
        body: TransactionBody::postgres(body),
        place: Seat::new(1, "pay") as Arc<dyn Place>,
        time_max: Duration::from_millis(300),
    };
    let answer = store.transact(transact).await;
    assert!(matches!(answer, Err(Error::Unavailable(Outage::NoAnswer, _))), "{answer:?}");
    drop(told.await.unwrap());
}
