//! Transactions that meet: what loses against another is made again, inside the store, and each
//! caller is answered; a run's writes stay in order whatever becomes of the batch.

use std::time::Duration;

use onward::store::*;
use onward::{Code, OnConflict, Overlap, RunId, RunState};

use super::stage::*;

/// The time after which a transaction of the tests' server that waits looks for a deadlock.
const LOOKS_FOR_DEADLOCK: Duration = Duration::from_secs(1);

/// A continuation and a start both lock the key before the run.
#[tokio::test]
async fn a_continuation_and_a_start_on_its_key_are_both_answered() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    start(&store, keyed_run("k")).await;
    let lease = claimed(&store, worker, 1).await;
    let raw = stage.raw().await;
    hold_step(&raw, lease.run, "a").await;
    let next = RunId::new();
    let end = End::Continued { run: next, input: json("2"), undelivered: Vec::new() };
    let settled = store.settle(lease, Settle::new(vec![done(&store, 1, "a")], end));
    stage.waiting(1).await;
    let met = store.start(vec![keyed_run("k")]);
    stage.waiting(2).await;

    let_go(&raw).await;
    assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid);
    let met = soon(met).await.unwrap().remove(0).unwrap();
    assert!(met.run == lease.run || met.run == next);
    let now = store.get(Which::Key { workflow: WORKFLOW.to_owned(), key: "k".to_owned() });
    assert_eq!(now.await.unwrap().unwrap().id, next);
}

/// A prune locks a run and then its key, a start the key and then its run.
#[tokio::test]
async fn a_prune_that_loses_against_a_start_is_made_again() {
    // Deadlocks are counted by database.
    let stage = Stage::apart().await;
    // Whoever looks for a deadlock first loses: only the prune looks while the test lasts.
    let store = stage.open_looking_for_deadlocks_after(SOON * 10).await;
    let pruner = stage.open_looking_for_deadlocks_after(Duration::from_millis(10)).await;
    let worker = joined(&store).await;
    let old = start(&store, keyed_run("k")).await;
    let lease = claimed(&store, worker, 1).await;
    store.settle(lease, Settle::new(vec![], End::Completed(json("1")))).await.unwrap();
    let (records, keys) = (stage.raw().await, stage.raw().await);
    records.batch_execute("begin; lock table records in access exclusive mode").await.unwrap();
    // Of a policy that asks questions in a transaction.
    let mut met = keyed_run("k");
    if let Some(key) = &mut met.key {
        key.on_conflict = OnConflict::RetryFailed;
    }
    let met = store.start(vec![met]);
    stage.waiting(1).await;
    keys.batch_execute("begin; lock table keys in share mode").await.unwrap();
    let pruned = pruner.prune(Prune::older_than(Duration::ZERO));
    stage.waiting(2).await;
    let_go(&records).await;
    // The start has taken the key and waits for the run, the prune for the key.
    stage.waiting_for_a_row(1).await;
    let_go(&keys).await;
    assert_eq!(soon(met).await.unwrap().remove(0).unwrap().run, old);
    // Made again, it may have passed over the run, which the start had locked.
    let first = soon(pruned).await.unwrap().runs;
    let second = pruner.prune(Prune::older_than(Duration::ZERO)).await.unwrap().runs;
    assert_eq!(first + second, 1);
    // A session tells at its end what it has counted. Made again, it may lose again.
    drop(pruner);
    let sql = "select deadlocks from pg_stat_database where datname = current_database()";
    until("it had lost", async || records.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0)
        .await;
}

/// A worker that leaves takes the fence and then its runs; a settle that asks questions has its
/// run, and takes the fence last.
#[tokio::test]
async fn a_worker_may_leave_while_it_settles() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    start(&store, keyed_run("k")).await;
    let lease = claimed(&store, worker, 1).await;
    let raw = stage.raw().await;
    hold_step(&raw, lease.run, "a").await;
    let end = End::Continued { run: RunId::new(), input: json("2"), undelivered: Vec::new() };
    let settled = store.settle(lease, Settle::new(vec![done(&store, 1, "a")], end));
    stage.waiting(1).await;
    let left = store.leave(worker);
    stage.waiting(2).await;
    tokio::time::sleep(LOOKS_FOR_DEADLOCK * 3 / 2).await;

    let_go(&raw).await;
    soon(left).await.unwrap();
    let run = store.get(Which::Id(lease.run)).await.unwrap().unwrap();
    match soon(settled).await {
        Ok(_) => assert_eq!(run.state, RunState::Completed),
        Err(error) => {
            assert!(matches!(error, Error::LeaseLost), "{error}");
            assert_eq!(run.state, RunState::Queued);
        }
    }
}

/// A child whose start the cancel of its parent does not see is asked to end as the others are.
#[tokio::test]
async fn a_cancel_reaches_a_child_that_is_started_meanwhile() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let raw = stage.raw().await;
    // Of a policy that asks questions in a transaction, and one of a batch.
    let mut asking = keyed_run("k");
    asking.key.as_mut().unwrap().on_conflict = OnConflict::RetryFailed;
    for (ticket, child) in [new_run(), asking].into_iter().enumerate() {
        started(&store).await;
        let lease = claimed(&store, worker, ticket as i64).await;
        let parent = literal(lease.run);
        raw.batch_execute("begin").await.unwrap();
        let cancel = format!("update runs set cancel_at = 1 where id = {parent}");
        raw.batch_execute(&cancel).await.unwrap();
        let parent_of = NewParent { lease, step: "$child/c".to_owned(), detached: false };
        let child = NewRun { id: RunId::new(), parent: Some(parent_of), ..child };
        let started = store.start(vec![child]);
        tokio::pin!(started);
        // As long as the cancel is not committed the start waits for it.
        tokio::select! {
            answer = &mut started => panic!("{answer:?} beside a cancel that is not committed"),
            () = stage.waiting(1) => {}
        }
        raw.batch_execute("commit").await.unwrap();
        soon(started).await.unwrap().remove(0).unwrap();
        let sql = format!("select cascades from runs where id = {parent}");
        let cascades: Option<bool> = raw.query_one(&sql, &[]).await.unwrap().get(0);
        assert_eq!(cascades, Some(true), "the children are to be asked");
        store.settle(lease, Settle::new(vec![], End::Cancelled)).await.unwrap();
    }
}

/// Fails where a batch that was refused hands its writes to transactions of their own and the lane
/// goes on meanwhile: the end of a run would overtake its record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_writes_stay_in_order_when_their_batch_is_refused() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let [first, bad, good @ ..] = one_lane::<22>(&store, worker).await;
    store.record(bad, vec![done(&store, 1, "a")].into()).await.unwrap();
    let raw = stage.raw().await;
    hold_step(&raw, first.run, "a").await;
    let held = store.record(first, vec![done(&store, 1, "a")].into());
    stage.waiting(1).await;
    // These are gathered while the lane waits.
    let clash = store.record(bad, vec![done(&store, 2, "a")].into());
    let writes: Vec<_> = (good.iter())
        .map(|lease| {
            let record = store.record(*lease, vec![done(&store, 1, "a")].into());
            let end = Settle::new(vec![done(&store, 2, "b")], End::Completed(json("1")));
            (record, store.settle(*lease, end))
        })
        .collect();
    let_go(&raw).await;
    soon(held).await.unwrap();
    assert!(matches!(soon(clash).await.unwrap_err(), Error::Conflict(_)));
    for (record, settled) in writes {
        soon(record).await.unwrap();
        assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid);
    }
}

/// Fails where a lock on one run is an outage for every write of its batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_run_holds_up_no_other_of_its_batch() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let [first, locked, free] = one_lane(&store, worker).await;
    let (step, row) = (stage.raw().await, stage.raw().await);
    hold_step(&step, first.run, "a").await;
    let held = store.record(first, vec![done(&store, 1, "a")].into());
    stage.waiting(1).await;
    let lock = format!("begin; select 1 from runs where id = {} for update", literal(locked.run));
    row.batch_execute(&lock).await.unwrap();
    // These are gathered while the lane waits.
    let end = || Settle::new(vec![], End::Completed(json("1")));
    let (waits, goes) = (store.settle(locked, end()), store.settle(free, end()));
    let_go(&step).await;
    soon(held).await.unwrap();
    assert_eq!(soon(goes).await.unwrap(), Settled::AsSaid);
    let waited = soon(waits).await.unwrap_err();
    assert!(matches!(waited, Error::Unavailable(Outage::Locked, _)), "{waited}");
    let_go(&row).await;
    assert_eq!(soon(store.settle(locked, end())).await.unwrap(), Settled::AsSaid);
}

/// Fails where a key that a transaction of somebody's holds is an outage for every start of the
/// process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_key_holds_up_no_other_start() {
    let stage = Stage::new();
    let store = stage.open().await;
    let raw = stage.raw().await;
    let hold = format!(
        "begin; insert into keys (workflow, key, run, fingerprint)
         values ('{WORKFLOW}', 'k', gen_random_uuid(), '')"
    );
    raw.batch_execute(&hold).await.unwrap();
    let waits = store.start(vec![keyed_run("k")]);
    stage.waiting(1).await;
    // These are gathered while the lane waits.
    let (late, goes) = (store.start(vec![keyed_run("k")]), store.start(vec![keyed_run("l")]));
    soon(goes).await.unwrap().remove(0).unwrap();
    let_go(&raw).await;
    let (waits, late) = (soon(waits).await.unwrap(), soon(late).await.unwrap());
    let run = |mut started: Vec<Result<Started, Error>>| started.remove(0).unwrap().run;
    assert_eq!(run(waits), run(late));
}

/// Fails where a write looks for its record, adds it, and takes what it meets for another's: the
/// first write of the same record may be committed in between, long after its answer was lost.
#[tokio::test]
async fn a_write_never_conflicts_with_its_own_first_one() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    // The first write, whose commit is under way.
    let raw = stage.raw().await;
    let first = format!(
        "begin;
         insert into records (run, seq, step, slot, kind, body, try_number, attempt, began_at, at,
             foreign_await)
         values ({}, 1, 'a', 0, 'done', '1', 1, 1, 0, 0, false)",
        literal(lease.run)
    );
    raw.batch_execute(&first).await.unwrap();
    // The repeat, with an end that is made in a transaction of its own.
    let stuck = End::Stuck { code: Code::HistoryMismatch, detail: "x".into(), wakes_seen: 0 };
    let settled = store.settle(lease, Settle::new(vec![done(&store, 1, "a")], stuck));
    stage.waiting(1).await;
    raw.batch_execute("commit").await.unwrap();
    assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid);
    assert_eq!(store.history(lease.run, None, 10).await.unwrap().records.len(), 1);
}

/// A firing out of turn.
fn trigger(schedule: &onward::Schedule, at: i64) -> Fire {
    let occurrence = NewOccurrence {
        at: onward::Timestamp::from_millis(at),
        run: RunId::new(),
        key: format!("schedule/{at}"),
        input: None,
    };
    Fire {
        name: schedule.name.clone(),
        generation: schedule.generation,
        advance: None,
        occurrences: vec![occurrence],
        caller: "test".to_owned(),
    }
}

/// Fails where a firing looks for the latest run, waits for its row, and takes it for ended when it went on as
/// another meanwhile: two would be at work at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_firing_follows_a_run_that_goes_on_as_another_meanwhile() {
    for overlap in [Overlap::Skip, Overlap::BufferOne, Overlap::CancelPrevious] {
        let stage = Stage::new();
        let store = stage.open().await;
        let schedules = store.schedules().unwrap();
        let put = PutSchedule { overlap, ..hourly("s") };
        let schedule = schedules.put_schedule(put).await.unwrap();
        schedules.fire_schedule(trigger(&schedule, 1)).await.unwrap();
        let worker = joined(&store).await;
        let lease = claimed(&store, worker, 1).await;
        let raw = stage.raw().await;
        hold_step(&raw, lease.run, "a").await;
        let next = RunId::new();
        let end = End::Continued { run: next, input: json("2"), undelivered: Vec::new() };
        let settled = store.settle(lease, Settle::new(vec![done(&store, 1, "a")], end));
        stage.waiting(1).await;
        let second = trigger(&schedule, 2);
        let run = second.occurrences[0].run;
        let fired = schedules.fire_schedule(second);
        stage.waiting(2).await;
        let_go(&raw).await;
        assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid);
        let expected = match overlap {
            Overlap::Skip => Occurred::Skipped { live: next },
            Overlap::BufferOne => Occurred::Buffered { run, behind: next },
            _ => Occurred::Replaced { run, previous: next },
        };
        assert_eq!(soon(fired).await.unwrap(), Fired::Done(vec![expected]));
    }
}
