//! Hints between processes: that they come, that they come at once, and that they are few.

use std::time::{Duration, Instant};

use futures::future::{join_all, poll_fn};
use onward::RunId;
use onward::store::*;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;

use crate::database;
use crate::stage::*;

/// Returns when the one connection listens, and has heard itself.
async fn listening(stage: &Stage) -> i32 {
    let raw = stage.raw().await;
    let sql = "select max(pid) from pg_stat_activity
               where application_name = $1 and query like 'listen %' and state = 'idle'";
    let pid = async || raw.query_one(sql, &[&stage.name()]).await.unwrap().get::<_, Option<i32>>(0);
    until("a connection listens", async || pid().await.is_some()).await;
    // The echo comes back, and wakes nobody any more.
    tokio::time::sleep(Duration::from_millis(300)).await;
    pid().await.unwrap()
}

/// How long after a start in one store a waiter of the other wakes: the median of some.
async fn wakes_after(here: &PostgresStore, there: &PostgresStore) -> Duration {
    let mut times = Vec::new();
    for _ in 0..11 {
        let waiter = there.wait(Topic::Work);
        let run = started(here).await;
        let answered = Instant::now();
        soon(waiter).await;
        times.push(answered.elapsed());
        assert!(there.get(Which::Id(run)).await.unwrap().is_some());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Fails where a waiter looks on a timer, which is every half second at its best.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_stores_commit_wakes_a_waiter_at_once() {
    let stage = Stage::new();
    let (here, there) = (stage.open().await, stage.open().await);
    drop(there.wait(Topic::Work));
    listening(&stage).await;
    let median = wakes_after(&here, &there).await;
    assert!(median < Duration::from_millis(100), "{median:?}");
}

/// Fails where the end of the connection is not noticed, or what was missed meanwhile is not
/// looked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_listens_is_made_again() {
    let stage = Stage::new();
    let (here, there) = (stage.open().await, stage.open().await);
    drop(there.wait(Topic::Work));
    let first = listening(&stage).await;
    let waiter = there.wait(Topic::Work);
    let raw = stage.raw().await;
    raw.query("select pg_terminate_backend($1)", &[&first]).await.unwrap();
    started(&here).await;
    soon(waiter).await;
    assert_ne!(listening(&stage).await, first);
    let median = wakes_after(&here, &there).await;
    assert!(median < Duration::from_millis(100), "{median:?}");
}

/// Inside one process no notification is needed: a store passes over its own.
#[tokio::test]
async fn a_stores_own_commits_wake_by_topic_only() {
    let stage = Stage::new();
    let store = stage.open().await;
    drop(store.wait(Topic::Work));
    listening(&stage).await;
    let quiet = store.wait(Topic::Run(RunId::new()));
    let work = store.wait(Topic::Work);
    started(&store).await;
    soon(work).await;
    let woken = tokio::time::timeout(Duration::from_millis(400), quiet).await;
    assert!(woken.is_err());
}

#[tokio::test]
async fn a_record_wakes_nobody_and_a_settle_does() {
    let stage = Stage::new();
    let (here, there) = (stage.open().await, stage.open().await);
    let worker = joined(&here).await;
    started(&here).await;
    let lease = claimed(&here, worker, 1).await;
    drop(there.wait(Topic::Work));
    listening(&stage).await;
    let mut waiter = std::pin::pin!(there.wait(Topic::Run(lease.run)));
    here.record(lease, vec![done(&here, 1, "a")]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(futures::poll!(&mut waiter).is_pending());
    let end = End::Completed(json("1"));
    here.settle(lease, Settle::new(vec![done(&here, 2, "b")], end)).await.unwrap();
    soon(waiter).await;
}

/// What is heard on the channel of a schema.
async fn heard(stage: &Stage) -> (tokio_postgres::Client, mpsc::UnboundedReceiver<String>) {
    let (client, mut connection) =
        tokio_postgres::connect(&database::url(), tokio_postgres::NoTls).await.unwrap();
    let (sender, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("listen onward_{}", stage.name())).await.unwrap();
    (client, heard)
}

/// Fails where each write tells of itself: a notification takes a lock of the whole server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_tell_of_themselves_at_most_once() {
    let stage = Stage::new();
    let store = stage.open().await;
    let (listener, mut heard) = heard(&stage).await;
    let answers = join_all((0..2_000).map(|_| store.start(vec![new_run()]))).await;
    answers.into_iter().for_each(|answer| drop(answer.unwrap()));
    let raw = stage.raw().await;
    let sql = "select count(distinct xmin::text), count(*) from runs";
    let row = raw.query_one(sql, &[]).await.unwrap();
    let (commits, runs): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(runs, 2_000);
    // The last of them is on its way.
    let mut told = 0;
    while let Ok(Some(payload)) =
        tokio::time::timeout(Duration::from_millis(500), heard.recv()).await
    {
        assert!(payload.len() < 8_000, "{} bytes", payload.len());
        told += 1;
    }
    assert!(told >= 1 && told <= commits, "{told} notifications for {commits} commits");
    drop(listener);
}
