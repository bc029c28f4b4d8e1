//! A standby that is promoted without the last moments of its primary: what workers know beside it counts for
//! nothing, and every run that is left goes on from what is left.

use std::time::Duration;

use onward::store::*;
use onward::{Code, Ctx, Failure, Onward, RunHandle, Workflow};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::stage::*;
use crate::database::connect_to;

/// How many runs are started beside a failover.
const RUNS: u64 = 120;

/// Two servers, of which the second streams from the first.
struct Pair {
    primary: Cluster,
    standby: Cluster,
}

impl Pair {
    fn new() -> Self {
        let primary = Cluster::new("wal_level = replica\nfsync = on\nmax_connections = 100");
        let standby = primary.standby();
        Self { primary, standby }
    }

    /// The standby first: a URL of several hosts means the one that takes writes.
    fn url(&self) -> String {
        let hosts = format!("{},{}", self.standby.address(), self.primary.address());
        format!("postgres://onward@{hosts}/postgres?connect_timeout=2")
    }

    /// Waits until the standby has all that is there.
    async fn caught_up(&self) {
        let (primary, standby) =
            (connect_to(&self.primary.url()).await, connect_to(&self.standby.url()).await);
        let now = "select pg_current_wal_lsn()::text";
        let now: String = primary.query_one(now, &[]).await.unwrap().get(0);
        let has = format!("select pg_last_wal_replay_lsn() >= '{now}'::pg_lsn");
        until("the standby has all", async || {
            standby.query_one(&has, &[]).await.unwrap().get::<_, Option<bool>>(0) == Some(true)
        })
        .await;
    }

    /// Lets the standby hear no more of its primary.
    async fn cut(&self) {
        let standby = connect_to(&self.standby.url()).await;
        standby.batch_execute("alter system set primary_conninfo = ''").await.unwrap();
        standby.batch_execute("select pg_reload_conf()").await.unwrap();
        let streams = "select count(*) from pg_stat_wal_receiver";
        until("the standby hears no more", async || {
            standby.query_one(streams, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
    }

    fn fail_over(&self) {
        self.primary.crash();
        self.standby.promote();
    }
}

fn parked(wakes_seen: u64) -> Settle {
    let waits_for = onward::Waits::Timer { step: "t".to_owned() };
    Settle::new(vec![], End::Parked { wake_at: None, waits_for, wakes_seen })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_told_that_its_server_is_another() {
    let pair = Pair::new();
    let store = PostgresStore::open(&pair.url()).await.unwrap();
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    assert!(!store.renew(worker).await.unwrap().moved);
    pair.caught_up().await;
    pair.fail_over();
    let renewed = async {
        loop {
            match store.renew(worker).await {
                Ok(renewed) => break renewed,
                Err(Error::Unavailable(..)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert!(soon(renewed).await.moved);
    // It may be told to wait for what is gone.
    let answer = store.settle(lease, parked(0)).await;
    assert!(matches!(answer, Err(Error::HistoryLost)), "{answer:?}");
    store.settle(lease, Settle::new(vec![], End::Released)).await.unwrap();
    store.leave(worker).await.unwrap();
    let worker = joined(&store).await;
    assert!(!store.renew(worker).await.unwrap().moved);
    let lease = claimed(&store, worker, 1).await;
    assert_eq!(store.settle(lease, parked(1)).await.unwrap(), Settled::AsSaid);
}

const PAY: Workflow<u64, u64> = Workflow::named("pay");
const SHIP: Workflow<u64, u64> = Workflow::named("ship");

/// How long a body takes, so that runs are under way before the standby is cut off and after it is promoted.
const BODY: Duration = Duration::from_millis(100);

const LEASE: Duration = Duration::from_secs(1);

/// What each body does.
async fn work() -> Result<(), Failure> {
    tokio::time::sleep(BODY).await;
    Ok(())
}

async fn ship(ctx: Ctx, order: u64) -> Result<u64, Failure> {
    ctx.step("pack", async |_| work().await).await?;
    Ok(order)
}

/// Books in two transactions, with steps and a child between.
async fn pay(ctx: Ctx, order: u64) -> Result<u64, Failure> {
    let book = |what: &'static str| {
        ctx.postgres_transaction(what, move |db, _| async move {
            db.execute("insert into booked values ($1, $2)", &[&(order as i64), &what]).await?;
            Ok::<_, Failure>(())
        })
    };
    ctx.step("check", async |_| work().await).await?;
    book("reserve").await?;
    let shipped = ctx.start(SHIP, &order).queue("shipping").result().await?;
    ctx.step("mail", async |_| work().await).await?;
    book("charge").await?;
    Ok(shipped)
}

/// What a run that completed must have.
const STEPS: [&str; 5] = ["check", "reserve", "$child/ship#1", "mail", "charge"];

/// When runs are started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Starts {
    /// All the time, so that whole runs and claims are lost with the primary.
    Throughout,
    /// Only before the standby is cut off, so that no lost claim tells the worker to begin anew.
    Before,
}

/// Starts runs; one whose answer is lost is none of this test.
async fn start_runs(onward: Onward, pause: Duration) -> Vec<(u64, RunHandle<u64>)> {
    let mut starts = JoinSet::new();
    for order in 0..RUNS {
        let onward = onward.clone();
        let start = async move { onward.start(PAY, &order).await };
        starts.spawn(async move { (order, tokio::time::timeout(SOON, start).await) });
        tokio::time::sleep(pause).await;
    }
    let started = starts.join_all().await.into_iter();
    started.filter_map(|(order, run)| Some((order, run.ok()?.ok()?))).collect()
}

/// Cuts the standby off beside runs and loses the primary; gives how many runs were lost with it.
async fn lose_a_primary(starts: Starts) -> usize {
    let pair = Pair::new();
    let setup = connect_to(&pair.primary.url()).await;
    setup.batch_execute("create table booked (run bigint, what text)").await.unwrap();
    let (paying, shipping) =
        (Onward::open(&pair.url()).await.unwrap(), Onward::open(&pair.url()).await.unwrap());
    let worker = paying.worker().lease(LEASE).linger(Duration::from_millis(5)).serve(PAY, pay);
    let worker = worker.start().await.unwrap();
    let shipper = shipping.worker().lease(LEASE).queues(["shipping"]).serve(SHIP, ship);
    let shipper = shipper.start().await.unwrap();
    let started = match starts {
        Starts::Throughout => {
            let starting = tokio::spawn(start_runs(paying.clone(), Duration::from_millis(5)));
            tokio::time::sleep(BODY * 2).await;
            pair.cut().await;
            tokio::time::sleep(BODY * 2).await;
            pair.fail_over();
            starting.await.unwrap()
        }
        Starts::Before => {
            let started = start_runs(paying.clone(), Duration::ZERO).await;
            pair.caught_up().await;
            pair.cut().await;
            tokio::time::sleep(BODY).await;
            pair.fail_over();
            started
        }
    };
    let lost = assert_whole(&started, &pair.standby.url()).await;
    worker.shutdown().await.unwrap();
    shipper.shutdown().await.unwrap();
    lost
}

/// Asserts that every run that is there completes with all that it did; gives how many are not there.
async fn assert_whole(started: &[(u64, RunHandle<u64>)], url: &str) -> usize {
    let raw = connect_to(url).await;
    let mut lost = 0;
    for (order, run) in started {
        let result = tokio::time::timeout(SOON * 2, run.result()).await;
        let result = match result {
            Ok(Err(error)) if error.code() == Code::RunNotFound => {
                lost += 1;
                continue;
            }
            Ok(result) => result,
            Err(_) => panic!("it hangs: {:?}", run.status().await),
        };
        assert_eq!(result.unwrap(), *order);
        let history = run.history().await.unwrap();
        let steps: Vec<_> = history.iter().map(|record| record.step.as_str()).collect();
        assert_eq!(steps, STEPS, "no holes");
        let sql = "select string_agg(what, ' ' order by what) from booked where run = $1";
        let booked: Option<String> = raw.query_one(sql, &[&(*order as i64)]).await.unwrap().get(0);
        assert_eq!(booked.as_deref(), Some("charge reserve"), "each once");
    }
    let held = "select count(*) from onward.runs where state = 'running'";
    until("nothing is held", async || {
        raw.query_one(held, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    lost
}

fn failovers() -> usize {
    std::env::var("ONWARD_FAILOVERS").map_or(1, |count| count.parse().unwrap())
}

/// Fails where a worker goes on from memory: runs were completed without their transactions' writes, had
/// holes in their histories, or waited for a child that was never started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_completed_without_what_the_standby_lacks() {
    for _ in 0..failovers() {
        assert_eq!(lose_a_primary(Starts::Before).await, 0, "all are at the standby");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_are_lost_with_their_primary_hold_up_no_other() {
    for _ in 0..failovers() {
        let lost = lose_a_primary(Starts::Throughout).await;
        assert!((1..RUNS as usize - 10).contains(&lost), "{lost} were lost");
    }
}
