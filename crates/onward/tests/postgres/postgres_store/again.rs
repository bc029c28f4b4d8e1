//! Serialization failures: what loses against another transaction is made again inside the store,
//! on every path that writes, and its caller hears nothing of it. A trigger of the test's plays the
//! other transaction.

use std::sync::Arc;
use std::time::Duration;

use onward::store::*;
use onward::{Code, Failure, RunId, RunState};
use tokio_postgres::Client;

use super::stage::*;
use crate::seat::{Seat, recorded};

/// When the server says who has lost: at the statement that writes, or not before the commit.
const MOMENTS: [&str; 2] = ["not deferrable", "deferrable initially deferred"];

/// Lets the first row that is written to a table lose. It counts by a sequence, from which a
/// rollback takes nothing back.
struct Trap(Client);

impl Trap {
    /// `event`: what is written where, as a trigger says it.
    async fn set(stage: &Stage, event: &str, moment: &str) -> Self {
        let (raw, schema) = (stage.raw().await, stage.name());
        let sql = format!(
            "create sequence hits;
             create function trap() returns trigger language plpgsql as $$
             begin
                 if nextval('{schema}.hits') = 1 then
                     raise 'another was first' using errcode = '40001';
                 end if;
                 return null;
             end $$;
             create constraint trigger trap after {event} {moment}
             for each row execute function trap()"
        );
        raw.batch_execute(&sql).await.unwrap();
        Self(raw)
    }

    /// How many rows met it, with the one that lost.
    async fn hits(&self) -> i64 {
        self.number("select case when is_called then last_value else 0 end from hits").await
    }

    async fn rows(&self, table: &str) -> i64 {
        self.number(&format!("select count(*) from {table}")).await
    }

    /// How many transactions wrote the rows of a table.
    async fn commits(&self, table: &str) -> i64 {
        self.number(&format!("select count(distinct xmin::text) from {table}")).await
    }

    async fn number(&self, sql: &str) -> i64 {
        self.0.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// Its key is taken by the try that lost, and must not make the next one a duplicate.
#[tokio::test]
async fn a_start_that_loses_is_made_again() {
    for moment in MOMENTS {
        let stage = Stage::new();
        let store = stage.open().await;
        let trap = Trap::set(&stage, "insert on runs", moment).await;
        let run = keyed_run("k");
        let id = run.id;
        let started = soon(store.start(vec![run])).await.unwrap().remove(0).unwrap();
        assert_eq!((started.run, started.how), (id, StartedHow::New), "{moment}");
        assert_eq!((trap.hits().await, trap.rows("runs").await), (2, 1), "{moment}");
        assert_eq!((trap.rows("keys").await, trap.rows("inputs").await), (1, 1), "{moment}");
        let kept = store.get(Which::Id(id)).await.unwrap().unwrap();
        assert_eq!((kept.state, kept.duplicates), (RunState::Queued, 0), "{moment}");
    }
}

#[tokio::test]
async fn starts_that_lose_together_are_each_made_again() {
    for moment in MOMENTS {
        let stage = Stage::new();
        let store = stage.open().await;
        let trap = Trap::set(&stage, "insert on runs", moment).await;
        let runs = vec![new_run(), new_run(), new_run()];
        let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
        let started = soon(store.start(runs)).await.unwrap();
        let started: Vec<RunId> = started.into_iter().map(|started| started.unwrap().run).collect();
        assert_eq!(started, ids, "{moment}");
        assert_eq!((trap.hits().await, trap.rows("runs").await), (4, 3), "{moment}");
    }
}

#[tokio::test]
async fn a_claim_that_loses_is_made_again() {
    for moment in MOMENTS {
        let stage = Stage::new();
        let store = stage.open().await;
        let worker = joined(&store).await;
        let run = started(&store).await;
        let trap = Trap::set(&stage, "update on runs", moment).await;
        let lease = soon(claimed(&store, worker, 1)).await;
        assert_eq!(lease, Lease { run, worker, attempt: 1 }, "{moment}");
        assert_eq!(trap.hits().await, 2, "{moment}");
        let kept = store.get(Which::Id(run)).await.unwrap().unwrap();
        let held = (kept.state, kept.worker, kept.attempt);
        assert_eq!(held, (RunState::Running, Some(worker), 1), "{moment}");
    }
}

/// A store, and a run in it that a worker holds.
async fn held() -> (Stage, Arc<PostgresStore>, Lease) {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    (stage, store, lease)
}

#[tokio::test]
async fn a_lone_record_that_loses_is_made_again() {
    for moment in MOMENTS {
        let (stage, store, lease) = held().await;
        let trap = Trap::set(&stage, "insert on records", moment).await;
        soon(store.record(lease, vec![done(&store, 1, "a")].into())).await.unwrap();
        assert_eq!((trap.hits().await, trap.rows("records").await), (2, 1), "{moment}");
        assert_eq!(store.history(lease.run, None, 10).await.unwrap().records.len(), 1, "{moment}");
    }
}

/// Records of several runs, and the end of one.
#[tokio::test]
async fn a_group_commit_that_loses_is_made_again_as_one() {
    for moment in MOMENTS {
        let stage = Stage::new();
        let store = stage.open().await;
        let worker = joined(&store).await;
        let [first, last, others @ ..] = one_lane::<4>(&store, worker).await;
        let trap = Trap::set(&stage, "insert on records", moment).await;
        let raw = stage.raw().await;
        hold_attempt(&raw, first).await;
        let held = store.settle(first, Settle::new(vec![], End::Released));
        stage.waiting(1).await;
        // These are gathered while the lane waits.
        let written = others.map(|lease| {
            store.record(lease, vec![done(&store, 1, "a"), done(&store, 2, "b")].into())
        });
        let end = Settle::new(vec![done(&store, 1, "a")], End::Completed(json("1")));
        let settled = store.settle(last, end);
        let_go(&raw).await;
        soon(held).await.unwrap();
        for answer in written {
            soon(answer).await.unwrap();
        }
        assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid, "{moment}");
        assert_eq!((trap.hits().await, trap.rows("records").await), (6, 5), "{moment}");
        assert_eq!(trap.commits("records").await, 1, "{moment}");
    }
}

/// A group commit makes the first two ends, and a transaction of its own the third.
#[tokio::test]
async fn a_settle_that_loses_is_made_again() {
    let stuck =
        || End::Stuck { code: Code::HistoryMismatch, detail: "x".to_owned(), wakes_seen: 0 };
    for moment in MOMENTS {
        let ends = [
            (End::Completed(json("1")), RunState::Completed),
            (End::Released, RunState::Queued),
            (stuck(), RunState::Waiting),
        ];
        for (end, state) in ends {
            let (stage, store, lease) = held().await;
            let trap = Trap::set(&stage, "update on runs", moment).await;
            let settled = store.settle(lease, Settle::new(vec![done(&store, 1, "a")], end));
            assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid, "{state} {moment}");
            assert_eq!((trap.hits().await, trap.rows("records").await), (2, 1), "{state} {moment}");
            let kept = store.get(Which::Id(lease.run)).await.unwrap().unwrap();
            assert_eq!((kept.state, kept.worker), (state, None), "{moment}");
        }
    }
}

/// With what its body wrote, which executes again.
#[tokio::test]
async fn a_transactional_step_that_loses_is_made_again() {
    for moment in MOMENTS {
        let (stage, store, lease) = held().await;
        let trap = Trap::set(&stage, "insert on records", moment).await;
        let notes = format!("{}.notes", stage.name());
        stage.raw().await.batch_execute("create table notes (text text not null)").await.unwrap();
        let seat = Seat::new(1, "pay");
        let transact = Transact {
            follows: Vec::new(),
            lease,
            step: "pay".into(),
            body: TransactionBody::postgres(note(notes)),
            place: Arc::clone(&seat) as Arc<dyn Place>,
            time_max: Duration::from_secs(10),
        };
        assert_eq!(recorded(soon(store.transact(transact)).await).step, "pay", "{moment}");
        assert_eq!(seat.placed(), 2, "{moment}");
        assert_eq!((trap.hits().await, trap.rows("records").await), (2, 1), "{moment}");
        assert_eq!(trap.rows("notes").await, 1, "{moment}");
    }
}

/// A body that writes one row to this table.
fn note(table: String) -> PostgresBody {
    Arc::new(move |db| {
        let insert = format!("insert into {table} values ('paid')");
        Box::pin(async move {
            db.batch_execute(&insert).await?;
            Ok::<_, Failure>(json("1"))
        })
    })
}

/// Fails where ends come before parks, each in their order: another batch, which tells the same runs that
/// their children have ended, could hold what this one waits for.
#[tokio::test]
async fn a_group_commit_locks_its_runs_in_one_order() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let mut leases = one_lane::<3>(&store, worker).await;
    leases.sort_unstable_by_key(|lease| lease.run);
    let [first, low, high] = leases;
    let (raw, other) = (stage.raw().await, stage.raw().await);
    hold_attempt(&raw, first).await;
    let held = store.settle(first, Settle::new(vec![], End::Released));
    stage.waiting(1).await;
    // These are gathered while the lane waits.
    let ends = store.settle(high, Settle::new(vec![], End::Completed(json("1"))));
    let waits_for = onward::Waits::Timer { step: "t".to_owned() };
    let park = End::Parked { wake_at: None, waits_for, wakes_seen: 0 };
    let parks = store.settle(low, Settle::new(vec![], park));
    let lock =
        |lease: Lease, how| format!("select from runs where id = {} {how}", literal(lease.run));
    other.batch_execute(&format!("begin; {}", lock(low, "for update"))).await.unwrap();
    let_go(&raw).await;
    soon(held).await.unwrap();
    stage.waiting_for_a_row(1).await;
    let free = raw.query(&lock(high, "for update skip locked"), &[]).await.unwrap();
    assert_eq!(free.len(), 1, "the later run is held while the earlier is waited for");
    let_go(&other).await;
    assert_eq!(soon(ends).await.unwrap(), Settled::AsSaid);
    assert_eq!(soon(parks).await.unwrap(), Settled::AsSaid);
}
