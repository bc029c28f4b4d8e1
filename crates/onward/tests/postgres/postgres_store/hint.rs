//! Hints between processes: that they come, that they come as hints, and that they are few.

use std::time::Duration;

use futures::future::{join_all, poll_fn};
use onward::RunId;
use onward::store::*;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;

use super::stage::*;
use crate::database;

/// What a test hears on the channel of a schema, beside the stores.
struct Ear {
    heard: mpsc::UnboundedReceiver<String>,
    _client: tokio_postgres::Client,
}

impl Ear {
    async fn at(stage: &Stage) -> Self {
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
        Self { heard, _client: client }
    }

    /// Returns when a store that began to listen has called itself. It has woken everybody by then,
    /// and wakes nobody any more.
    async fn echo(&mut self) {
        while !soon(self.heard.recv()).await.unwrap().ends_with(" echo") {}
    }
}

/// The one connection that listens.
async fn listening(stage: &Stage) -> i32 {
    let raw = stage.raw().await;
    let sql = "select max(pid) from pg_stat_activity
               where application_name = $1 and query like 'listen %' and state = 'idle'";
    let pid = async || raw.query_one(sql, &[&stage.name()]).await.unwrap().get::<_, Option<i32>>(0);
    until("a connection listens", async || pid().await.is_some()).await;
    pid().await.unwrap()
}

/// Lets one store commit, and looks whether it wakes a waiter of the other. A waiter for something
/// else stays where it is, which it does not where waiters look on a timer.
async fn assert_woken_by_a_hint(here: &PostgresStore, there: &PostgresStore) {
    let mut quiet = std::pin::pin!(there.wait(Topic::Run(RunId::new())));
    let waiter = there.wait(Topic::Work);
    let run = started(here).await;
    soon(waiter).await;
    assert!(there.get(Which::Id(run)).await.unwrap().is_some());
    assert!(futures::poll!(&mut quiet).is_pending(), "woken by a timer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_stores_commit_wakes_a_waiter_by_a_hint() {
    let stage = Stage::new();
    let (here, there) = (stage.open().await, stage.open().await);
    let mut ear = Ear::at(&stage).await;
    drop(there.wait(Topic::Work));
    ear.echo().await;
    for _ in 0..10 {
        assert_woken_by_a_hint(&here, &there).await;
    }
}

/// Fails where a hint dies with the store that owes it: its first notification needs a connection, and
/// who starts one run and leaves is gone before that is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_at_once_has_told_the_others() {
    let stage = Stage::new();
    let there = stage.open().await;
    let mut ear = Ear::at(&stage).await;
    drop(there.wait(Topic::Work));
    ear.echo().await;
    for _ in 0..10 {
        let here = stage.open().await;
        let waiter = there.wait(Topic::Work);
        started(&here).await;
        drop(here);
        soon(waiter).await;
    }
}

/// Fails where the end of the connection is not noticed, or what was missed meanwhile is not
/// looked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_listens_is_made_again() {
    let stage = Stage::new();
    let (here, there) = (stage.open().await, stage.open().await);
    let mut ear = Ear::at(&stage).await;
    drop(there.wait(Topic::Work));
    ear.echo().await;
    let first = listening(&stage).await;
    let waiter = there.wait(Topic::Work);
    let raw = stage.raw().await;
    raw.query("select pg_terminate_backend($1)", &[&first]).await.unwrap();
    started(&here).await;
    soon(waiter).await;
    ear.echo().await;
    assert_ne!(listening(&stage).await, first);
    assert_woken_by_a_hint(&here, &there).await;
}

/// Fails where a store that once did not hear itself looks on a timer for as long as its connection
/// lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_did_not_hear_itself_calls_again() {
    let stage = Stage::new();
    // A schema before the database's own, with a notification that tells nobody.
    let (raw, name) = (stage.raw().await, stage.name());
    let mute = format!(
        "create schema mute_{name};
         create function mute_{name}.pg_notify(text, text) returns void language sql as 'select'"
    );
    raw.batch_execute(&mute).await.unwrap();
    let options = format!("options=-c%20search_path%3Dmute_{name},pg_catalog");
    let store = PostgresStore::open(&with(&stage.url(), &options)).await.unwrap();
    let mut ear = Ear::at(&stage).await;
    // Everybody is woken when it begins to listen, and again by its first look on a timer.
    soon(store.wait(Topic::Run(RunId::new()))).await;
    soon(store.wait(Topic::Run(RunId::new()))).await;
    raw.batch_execute(&format!("drop schema mute_{name} cascade")).await.unwrap();
    ear.echo().await;
    until("nobody is woken without a reason", async || {
        let woken = store.wait(Topic::Run(RunId::new()));
        tokio::time::timeout(Duration::from_secs(1), woken).await.is_err()
    })
    .await;
}

/// Inside one process no notification is needed: a store passes over its own.
#[tokio::test]
async fn a_stores_own_commits_wake_by_topic_only() {
    let stage = Stage::new();
    let (store, other) = (stage.open().await, stage.open().await);
    let mut ear = Ear::at(&stage).await;
    drop(store.wait(Topic::Work));
    ear.echo().await;
    let mut quiet = std::pin::pin!(store.wait(Topic::Run(RunId::new())));
    let work = store.wait(Topic::Work);
    started(&store).await;
    soon(work).await;
    // When the test has heard the store's own, the store hears it before what another tells.
    soon(ear.heard.recv()).await.unwrap();
    let work = store.wait(Topic::Work);
    started(&other).await;
    soon(work).await;
    assert!(futures::poll!(&mut quiet).is_pending());
}

#[tokio::test]
async fn a_record_wakes_nobody_and_a_settle_does() {
    let stage = Stage::new();
    let (here, there) = (stage.open().await, stage.open().await);
    let worker = joined(&here).await;
    started(&here).await;
    let lease = claimed(&here, worker, 1).await;
    let mut ear = Ear::at(&stage).await;
    drop(there.wait(Topic::Work));
    ear.echo().await;
    let mut waiter = std::pin::pin!(there.wait(Topic::Run(lease.run)));
    let work = there.wait(Topic::Work);
    here.record(lease, vec![done(&here, 1, "a")].into()).await.unwrap();
    // What is told of a start comes after what is told of the record.
    started(&here).await;
    soon(work).await;
    assert!(futures::poll!(&mut waiter).is_pending());
    let end = End::Completed(json("1"));
    here.settle(lease, Settle::new(vec![done(&here, 2, "b")], end)).await.unwrap();
    soon(waiter).await;
}

/// Fails where each write tells of itself: a notification takes a lock of the whole server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_tell_of_themselves_at_most_once() {
    let stage = Stage::new();
    let store = stage.open().await;
    let mut ear = Ear::at(&stage).await;
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
        tokio::time::timeout(Duration::from_millis(500), ear.heard.recv()).await
    {
        assert!(payload.len() < 8_000, "{} bytes", payload.len());
        told += 1;
    }
    assert!(told >= 1 && told <= commits, "{told} notifications for {commits} commits");
}
