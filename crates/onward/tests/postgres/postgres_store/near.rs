//! Lone writes, which their callers send on a connection of their own runtime: in order with the lanes,
//! answered as these answer, and sent even where that runtime is kept busy.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use onward::Record;
use onward::store::*;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Client;

use super::prepared::{REPLACE, watch};
use super::stage::*;

/// Statements that are prepared on such a connection from its beginning; a lane prepares one at a time.
const PREPARED: i64 = 2;

/// How long what must not happen is waited for. Where it would, it takes a few milliseconds; and a write
/// that waits for a row is given up after three seconds.
const WHILE: Duration = Duration::from_millis(300);

/// A run whose lone writes are sent by their callers.
struct Scene {
    stage: Stage,
    store: Arc<PostgresStore>,
    raw: Client,
    lease: Lease,
    /// The server's process behind the callers' connection.
    session: i32,
}

impl Scene {
    async fn new() -> Self {
        Self::with("").await
    }

    /// Each record does something in the session that adds it.
    async fn with(then: &str) -> Self {
        let stage = Stage::new();
        let store = stage.open().await;
        Self::of(stage, store, then).await
    }

    async fn of(stage: Stage, store: Arc<PostgresStore>, then: &str) -> Self {
        let raw = stage.raw().await;
        watch(&raw, stage.name(), then).await;
        let worker = joined(&store).await;
        started(&store).await;
        let lease = claimed(&store, worker, 1).await;
        let mut scene = Self { stage, store, raw, lease, session: 0 };
        scene.session = scene.sent_by_caller(0).await;
        scene
    }

    /// Writes until a write is sent by its caller, and says in which session; `not` is another. The
    /// connection is made after a few of them, beside them.
    async fn sent_by_caller(&self, not: i32) -> i32 {
        let began = Instant::now();
        for no in 0.. {
            self.record(&format!("{not} {no}")).await.unwrap();
            let (session, prepared) = self.last_seen().await;
            if prepared == PREPARED && session != not {
                return session;
            }
            assert!(began.elapsed() < SOON, "every write goes by a lane");
        }
        unreachable!()
    }

    /// The session of the last record, and how many statements are prepared in it.
    async fn last_seen(&self) -> (i32, i64) {
        let last = "select session, prepared from seen order by no desc limit 1";
        let row = self.raw.query_one(last, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }

    /// Lets whoever writes this step wait, until the connection that comes back lets go.
    async fn hold(&self, step: &str) -> Client {
        let holder = self.stage.raw().await;
        hold_step(&holder, self.lease.run, step).await;
        holder
    }

    fn done(&self, step: &str) -> Record {
        done(&self.store, 1_000_000, step)
    }

    async fn record(&self, step: &str) -> Result<(), Error> {
        self.store.record(self.lease, vec![self.done(step)].into()).await
    }

    /// Whether a record is on disk.
    async fn has(&self, step: &str) -> bool {
        let sql = "select 1 from records where step = $1";
        self.raw.query_opt(sql, &[&step]).await.unwrap().is_some()
    }
}

fn threads(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

/// Fails where lone writes are sent by the store's thread, and where any lone write is not answered:
/// the answer may come before the write is wholly sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_write_is_sent_by_its_caller() {
    let scene = Scene::new().await;
    for no in 0..500 {
        scene.record(&format!("lone {no}")).await.unwrap();
        assert_eq!(scene.last_seen().await.0, scene.session);
    }
    let end = Settle::new(vec![scene.done("last")], End::Completed(json("1")));
    assert_eq!(scene.store.settle(scene.lease, end).await.unwrap(), Settled::AsSaid);
    assert_eq!(scene.last_seen().await.0, scene.session);
}

/// Two that are on their way at once are no lone writes, and share a commit or not as the lanes do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_beside_another_goes_by_its_lane() {
    let scene = Scene::new().await;
    let worker = joined(&scene.store).await;
    started(&scene.store).await;
    let other = claimed(&scene.store, worker, 1).await;
    let holder = scene.hold("held").await;
    let held = scene.store.record(scene.lease, vec![scene.done("held")].into());
    scene.stage.waiting_for_a_row(1).await;
    soon(scene.store.record(other, vec![scene.done("beside")].into())).await.unwrap();
    assert_ne!(scene.last_seen().await.0, scene.session);
    let_go(&holder).await;
    soon(held).await.unwrap();
}

/// A record whose caller no longer waits, as that of a step that lost a race, and the end of its run.
async fn an_end_waits_for(result: &str, is_near: bool) {
    let scene = Scene::new().await;
    let holder = scene.hold("loser").await;
    let mut loser = scene.done("loser");
    loser.entry = onward::Entry::Done(json(result));
    drop(scene.store.record(scene.lease, vec![loser].into()));
    scene.stage.waiting_for_a_row(1).await;
    let end = Settle::new(vec![], End::Completed(json("1")));
    let mut settled = scene.store.settle(scene.lease, end);
    assert!(tokio::time::timeout(WHILE, &mut settled).await.is_err(), "it overtook the record");
    let_go(&holder).await;
    assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid);
    assert!(scene.has("loser").await);
    assert_eq!(scene.last_seen().await.0 == scene.session, is_near);
}

/// Fails where the second of a run's writes goes by a lane while the first does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_waits_for_the_record_before_it() {
    an_end_waits_for("1", true).await;
}

/// Fails where it is sent by its caller while the first is in its lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_waits_for_a_record_in_its_lane() {
    an_end_waits_for(&format!("\"{}\"", "x".repeat(100_000)), false).await;
}

/// Fails where a refused write comes to its lane behind the one that waited for it: its run has ended by
/// then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_waits_for_a_refused_record_too() {
    let scene = Scene::new().await;
    let holder = scene.hold("taken").await;
    let refused = scene.store.record(scene.lease, vec![scene.done("taken")].into());
    scene.stage.waiting_for_a_row(1).await;
    let end = Settle::new(vec![], End::Completed(json("1")));
    let settled = scene.store.settle(scene.lease, end);
    holder.batch_execute("commit").await.unwrap();
    let clash = soon(refused).await.unwrap_err();
    assert!(matches!(clash, Error::Conflict(Conflict::Record { .. })), "{clash:?}");
    assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid);
}

/// Fails where a failure's details do not count: a write that a socket does not take at once would wait
/// for the runtime with its rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_failure_goes_by_its_lane() {
    let scene = Scene::new().await;
    let details = json(&format!("\"{}\"", "x".repeat(100_000)));
    let failure = onward::Failure::new("no").details(&details);
    let end = End::Failed { failure, step: None };
    let settle = Settle::new(vec![scene.done("last")], end);
    assert_eq!(scene.store.settle(scene.lease, settle).await.unwrap(), Settled::AsSaid);
    assert_ne!(scene.last_seen().await.0, scene.session);
}

/// As that, of many records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_records_go_by_their_lane() {
    let scene = Scene::new().await;
    let records = |first, count| {
        (first..first + count).map(|no| scene.done(&format!("one of {no}"))).collect::<Vec<_>>()
    };
    scene.store.record(scene.lease, records(0, 2).into()).await.unwrap();
    assert_eq!(scene.last_seen().await.0, scene.session);
    scene.store.record(scene.lease, records(100, 50).into()).await.unwrap();
    assert_ne!(scene.last_seen().await.0, scene.session);
}

/// Parallel steps of one run, as long as they last: each is answered, and each is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writes_of_one_run_are_all_answered() {
    let scene = Scene::new().await;
    let names: Vec<String> = (0..100).map(|no| format!("parallel {no}")).collect();
    let all = names.iter().map(|name| scene.record(name));
    for answer in soon(futures::future::join_all(all)).await {
        answer.unwrap();
    }
    for name in &names {
        assert!(scene.has(name).await, "{name}");
    }
}

/// Fails where what the statement of a lone record refuses is told as it is: only a transaction that
/// asks questions tells a repeat from a clash and from a lost lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_write_is_refused_as_any_other() {
    let scene = Scene::new().await;
    let first = scene.done("a");
    let again = || scene.store.record(scene.lease, vec![first.clone()].into());
    again().await.unwrap();
    assert_eq!(scene.last_seen().await.0, scene.session);
    again().await.unwrap();
    let mut other = first.clone();
    other.entry = onward::Entry::Done(json("2"));
    let clash = scene.store.record(scene.lease, vec![other].into()).await.unwrap_err();
    assert!(matches!(clash, Error::Conflict(Conflict::Record { .. })), "{clash:?}");
    let stale = Lease { attempt: scene.lease.attempt + 1, ..scene.lease };
    let lost = scene.store.record(stale, vec![scene.done("b")].into()).await.unwrap_err();
    assert!(matches!(lost, Error::LeaseLost), "{lost:?}");
    assert!(!scene.has("b").await);
    scene.record("c").await.unwrap();
    assert_eq!(scene.last_seen().await.0, scene.session);
}

/// Fails where an end that lost against another transaction is made again by its caller, whose runtime may
/// be kept busy by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_lost_is_made_again_by_its_lane() {
    let then = "
        if new.step = 'unlucky' and nextval('luck') = 1 then
            raise 'the first one loses' using errcode = '40001';
        end if;";
    let stage = Stage::new();
    let store = stage.open().await;
    let luck = format!("create sequence {}.luck", stage.name());
    stage.raw().await.batch_execute(&luck).await.unwrap();
    let then = then.replace("'luck'", &format!("'{}.luck'", stage.name()));
    let scene = Scene::of(stage, store, &then).await;
    let end = Settle::new(vec![scene.done("unlucky")], End::Completed(json("1")));
    assert_eq!(scene.store.settle(scene.lease, end).await.unwrap(), Settled::AsSaid);
    assert_ne!(scene.last_seen().await.0, scene.session);
}

/// Fails where what is sent waits for a runtime whose threads compute: what was finished would be on
/// disk only when they are done.
#[test]
fn a_busy_runtime_does_not_keep_a_record_from_the_disk() {
    let one = threads(1);
    let scene = one.block_on(Scene::new());
    let stage = scene.stage.name().to_owned();
    let recorded = one.spawn(async move {
        let recorded = scene.store.record(scene.lease, vec![scene.done("early")].into());
        // As a body does that never yields: on the only thread there is, until the record is seen.
        let seen = std::thread::spawn(move || {
            threads(1).block_on(async {
                let raw = crate::database::connect().await;
                let sql = format!("select 1 from {stage}.records where step = 'early'");
                until("the record is on disk", async || {
                    raw.query_opt(&sql, &[]).await.unwrap().is_some()
                })
                .await;
            });
        });
        assert!(seen.join().is_ok(), "the record waited for its runtime");
        recorded.await
    });
    one.block_on(recorded).unwrap().unwrap();
}

/// Fails where the time limit of a runtime that was busy is looked at before the answer that has come.
#[test]
fn an_answer_that_came_in_time_counts_even_if_it_is_heard_late() {
    let one = threads(1);
    let scene = one.block_on(async {
        let stage = Stage::new();
        let url = with(&stage.url(), "statement_timeout=4");
        let store = Arc::new(PostgresStore::open(&url).await.unwrap());
        Scene::of(stage, store, "").await
    });
    let recorded = one.spawn(async move {
        let recorded = scene.store.record(scene.lease, vec![scene.done("in time")].into());
        // Longer than the limit: as a body does that computes.
        std::thread::sleep(Duration::from_secs(5));
        recorded.await
    });
    one.block_on(recorded).unwrap().unwrap();
}

/// Fails where a caller waits for another runtime than its own, which may be kept busy.
#[test]
fn a_busy_runtime_does_not_keep_an_answer_from_another() {
    let (one, two) = (threads(1), threads(1));
    let scene = one.block_on(Scene::new());
    let (release, released) = mpsc::channel::<()>();
    let (entered, is_entered) = mpsc::channel();
    let busy = one.spawn(async move {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    is_entered.recv().unwrap();
    two.block_on(two.spawn(async move {
        soon(scene.store.record(scene.lease, vec![scene.done("elsewhere")].into())).await.unwrap();
        release.send(()).unwrap();
    }))
    .unwrap();
    one.block_on(busy).unwrap();
}

/// Fails where a run whose write was under way is kept for ever for a runtime that is no more.
#[test]
fn a_runtime_may_end_with_a_write_on_its_way() {
    let (one, two) = (threads(1), threads(1));
    let scene = one.block_on(Scene::new());
    let holder = two.block_on(scene.hold("left"));
    let inside = one.enter();
    let left = scene.store.record(scene.lease, vec![scene.done("left")].into());
    drop(inside);
    one.shutdown_timeout(SOON);
    two.block_on(async {
        let told = soon(left).await.unwrap_err();
        assert!(matches!(told, Error::Unavailable(Outage::NoAnswer, _)), "{told:?}");
        let_go(&holder).await;
        for step in ["left", "next"] {
            soon(scene.record(step)).await.unwrap();
        }
    });
}

/// Fails where a connection counts as begun for ever whose runtime ended before it was.
#[test]
fn a_runtime_may_end_before_it_has_a_connection() {
    let (one, two) = (threads(1), threads(1));
    let (stage, store) = two.block_on(async {
        let stage = Stage::new();
        let store = stage.open().await;
        (stage, store)
    });
    let (release, released) = mpsc::channel::<()>();
    let (entered, is_entered) = mpsc::channel();
    one.spawn(async move {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    is_entered.recv().unwrap();
    // On this thread: the runtime's own, on which connections are made, is kept busy.
    one.block_on(async {
        let worker = joined(&store).await;
        started(&store).await;
        let lease = claimed(&store, worker, 1).await;
        for seq in 0..20 {
            store
                .record(lease, vec![done(&store, seq, &format!("step {seq}"))].into())
                .await
                .unwrap();
        }
        store.leave(worker).await.unwrap();
    });
    // Before the thread is free again.
    one.shutdown_background();
    drop(release);
    two.block_on(async { Scene::of(stage, store, "").await });
}

/// Fails where a session that ends leaves its write without an answer, and where callers are sent to it
/// after that; also where no other is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_told_and_made_again() {
    let scene = Scene::new().await;
    let holder = scene.hold("cut").await;
    let cut = scene.store.record(scene.lease, vec![scene.done("cut")].into());
    scene.stage.waiting_for_a_row(1).await;
    let end = "select pg_terminate_backend($1)";
    scene.raw.query(end, &[&scene.session]).await.unwrap();
    let told = soon(cut).await.unwrap_err();
    assert!(matches!(told, Error::Unavailable(Outage::NoAnswer, _)), "{told:?}");
    let_go(&holder).await;
    soon(scene.record("cut")).await.unwrap();
    scene.sent_by_caller(scene.session).await;
}

/// Fails where a session that does not know its statements any more is asked for them again and again,
/// as behind a pooler that passes for a server; also where such a write is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_its_statements_is_left_for_the_lanes() {
    for then in ["deallocate all;", REPLACE] {
        let scene = Scene::with(then).await;
        for no in 0..20 {
            soon(scene.record(&format!("after {no}"))).await.unwrap();
            assert_ne!(scene.last_seen().await.0, scene.session);
        }
        let alive = "select 1 from pg_stat_activity where pid = $1";
        until("the session is left", async || {
            scene.raw.query_opt(alive, &[&scene.session]).await.unwrap().is_none()
        })
        .await;
    }
}
