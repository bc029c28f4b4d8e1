//! The fence, as forced interleavings: a lock of the test's holds one side open while the other
//! comes. Each test says which obvious way would fail it.

use std::time::Duration;

use onward::store::*;
use onward::{Code, RunState, TestClock, Waits};

use super::stage::*;

fn stuck() -> End {
    End::Stuck { code: Code::HistoryMismatch, detail: "other steps".to_owned(), wakes_seen: 0 }
}

fn parked() -> End {
    End::Parked { wake_at: None, waits_for: Waits::Timer { step: "t".to_owned() }, wakes_seen: 0 }
}

/// Two stores on one schema, a run that the first holds, and the time past its lease.
struct Takeover {
    stage: Stage,
    here: std::sync::Arc<PostgresStore>,
    there: std::sync::Arc<PostgresStore>,
    clock: TestClock,
    lease: Lease,
    second: onward::WorkerId,
}

impl Takeover {
    async fn new() -> Self {
        let (stage, clock) = (Stage::new(), TestClock::new());
        let (here, there) = (stage.open_at(&clock).await, stage.open_at(&clock).await);
        started(&here).await;
        let (first, second) = (joined(&here).await, joined(&there).await);
        let lease = claimed(&here, first, 1).await;
        Self { stage, here, there, clock, lease, second }
    }

    /// A sweep that finds the first worker's lease expired.
    async fn sweep(&self) -> Answer<'_, Swept> {
        self.clock.advance(Duration::from_secs(11));
        self.there.renew(self.second).await.unwrap();
        self.there.sweep(sweep_of(self.second))
    }

    /// What the second worker reads when it takes the run over.
    async fn taken_over(&self) -> Claimed {
        self.there.claim(claim_of(self.second, 7)).await.unwrap().runs.remove(0)
    }

    async fn is_lost(&self) -> bool {
        let worker = self.lease.worker.as_u128();
        let sql = format!("select lost_at is not null from workers where id = '{worker:032x}'");
        self.stage.raw().await.query_one(&sql, &[]).await.unwrap().get(0)
    }
}

/// Fails where a batch joins the run's attempt without a lock that the sweep takes too: the sweep
/// would not wait, the takeover would read no record, and then it would appear.
#[tokio::test]
async fn a_sweep_waits_for_an_open_batch_and_its_record_is_read() {
    let play = Takeover::new().await;
    let raw = play.stage.raw().await;
    hold_step(&raw, play.lease.run, "a").await;
    let written = play.here.record(play.lease, vec![done(&play.here, 1, "a")].into());
    play.stage.waiting(1).await;
    let swept = play.sweep().await;
    play.stage.waiting(2).await;
    assert!(!play.is_lost().await);

    let_go(&raw).await;
    soon(written).await.unwrap();
    let swept = soon(swept).await.unwrap();
    assert_eq!((swept.lost, swept.taken), (vec![play.lease.worker], vec![play.lease.run]));
    assert_eq!(play.taken_over().await.history.len(), 1);
}

/// Fails where one statement both waits for the fence and reads the mark: it reads the database as
/// it was when it began to wait, and writes for a lost worker.
#[tokio::test]
async fn a_batch_that_waited_for_a_sweep_sees_its_mark() {
    let play = Takeover::new().await;
    let raw = play.stage.raw().await;
    hold_attempt(&raw, play.lease).await;
    let swept = play.sweep().await;
    play.stage.waiting(1).await;
    let written = play.here.record(play.lease, vec![done(&play.here, 1, "a")].into());
    play.stage.waiting(2).await;

    let_go(&raw).await;
    assert_eq!(soon(swept).await.unwrap().taken, [play.lease.run]);
    assert!(matches!(soon(written).await.unwrap_err(), Error::LeaseLost));
    assert!(play.taken_over().await.history.is_empty());
}

/// Fails where a start reads that its claimant lives before it has the fence: a lost worker would hold
/// the run.
#[tokio::test]
async fn a_start_that_waited_for_a_sweep_is_claimed_by_nobody() {
    let play = Takeover::new().await;
    let raw = play.stage.raw().await;
    hold_attempt(&raw, play.lease).await;
    let swept = play.sweep().await;
    play.stage.waiting(1).await;
    let claimant = Some(Claimant { worker: play.lease.worker, build: "b1".to_owned() });
    let started = play.here.start(vec![NewRun { claimant, ..new_run() }]);
    play.stage.waiting(2).await;

    let_go(&raw).await;
    soon(swept).await.unwrap();
    let started = soon(started).await.unwrap().remove(0).unwrap();
    assert_eq!(started.how, StartedHow::New);
    let run = play.there.get(Which::Id(started.run)).await.unwrap().unwrap();
    assert_eq!((run.state, run.worker), (RunState::Queued, None));
}

/// Fails where a group commit reads that its worker lives before it has the fence: the run may be as
/// it was, if a sweep passed over it because somebody had locked it.
#[tokio::test]
async fn a_settle_that_waited_for_a_mark_sees_it() {
    let play = Takeover::new().await;
    let raw = play.stage.raw().await;
    let worker = format!("'{:032x}'::uuid", play.lease.worker.as_u128());
    let mark = format!(
        "begin; select pg_advisory_xact_lock(fence_key({worker}));
         update workers set lost_at = 1 where id = {worker}"
    );
    raw.batch_execute(&mark).await.unwrap();
    let last = Settle::new(vec![done(&play.here, 1, "a")], End::Completed(json("1")));
    let settled = play.here.settle(play.lease, last);
    play.stage.waiting(1).await;

    raw.batch_execute("commit").await.unwrap();
    assert!(matches!(soon(settled).await.unwrap_err(), Error::LeaseLost));
    let run = play.there.get(Which::Id(play.lease.run)).await.unwrap().unwrap();
    assert_eq!(run.state, RunState::Running, "a sweep takes it back, with what it recorded before");
}

/// Fails where a claim reads that its worker lives and takes no fence: it would take a run for a
/// worker that is lost, behind the back of the sweep.
#[tokio::test]
async fn a_claim_that_waited_for_a_sweep_takes_nothing() {
    let play = Takeover::new().await;
    let raw = play.stage.raw().await;
    hold_attempt(&raw, play.lease).await;
    let free = started(&play.there).await;
    let swept = play.sweep().await;
    play.stage.waiting(1).await;
    let claims = play.here.claim(claim_of(play.lease.worker, 2));
    play.stage.waiting(2).await;

    let_go(&raw).await;
    soon(swept).await.unwrap();
    assert!(matches!(soon(claims).await.unwrap_err(), Error::LeaseLost));
    let run = play.there.get(Which::Id(free)).await.unwrap().unwrap();
    assert_eq!(run.state, RunState::Queued);
}

/// Fails where a transaction that asks questions trusts what it read of its worker at its
/// beginning: the lock on the run's row does not keep the worker from being marked.
#[tokio::test]
async fn a_transaction_whose_worker_is_lost_before_its_commit_is_refused() {
    let play = Takeover::new().await;
    let raw = play.stage.raw().await;
    hold_step(&raw, play.lease.run, "a").await;
    let last = Settle::new(vec![done(&play.here, 1, "a")], stuck());
    let settled = play.here.settle(play.lease, last);
    play.stage.waiting(1).await;
    // The sweep passes over the run, which is locked, and does not wait.
    let swept = soon(play.sweep().await).await.unwrap();
    assert_eq!((swept.lost, swept.taken), (vec![play.lease.worker], vec![]));

    let_go(&raw).await;
    assert!(matches!(soon(settled).await.unwrap_err(), Error::LeaseLost));
    let swept = play.there.sweep(sweep_of(play.second)).await.unwrap();
    assert_eq!(swept.taken, [play.lease.run]);
    let taken = play.taken_over().await;
    assert!(taken.history.is_empty());
    assert!(taken.run.stuck_builds.is_empty());
}

/// Fails where the number of wakes is read in one statement and compared in another, or where
/// parking looks at another table: under READ COMMITTED both miss a cancel that is under way.
#[tokio::test]
async fn a_park_that_waited_for_a_cancel_is_queued() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let raw = stage.raw().await;
    // A cancel asks for records when it has locked the run; a park without any does not.
    raw.batch_execute("begin; lock table records in access exclusive mode").await.unwrap();
    let cancelled = store.cancel(lease.run);
    stage.waiting(1).await;
    let settled = store.settle(lease, Settle::new(vec![], parked()));
    stage.waiting(2).await;

    let_go(&raw).await;
    soon(cancelled).await.unwrap();
    assert_eq!(soon(settled).await.unwrap(), Settled::Queued);
    assert_eq!(claimed(&store, worker, 2).await.run, lease.run);
}

/// Fails where a cancel marks the run without looking at the state that it has by then.
#[tokio::test]
async fn a_cancel_that_waited_for_a_park_wakes_the_run() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let raw = stage.raw().await;
    hold_attempt(&raw, lease).await;
    let last = Settle::new(vec![done(&store, 1, "a")], parked());
    let settled = store.settle(lease, last);
    stage.waiting(1).await;
    let cancelled = store.cancel(lease.run);
    stage.waiting(2).await;

    let_go(&raw).await;
    assert_eq!(soon(settled).await.unwrap(), Settled::AsSaid);
    assert_eq!(soon(cancelled).await.unwrap().state, RunState::Queued);
    assert_eq!(claimed(&store, worker, 2).await.run, lease.run);
}

/// Fails where a claim chooses runs without locking them, and waits where it does not skip.
#[tokio::test]
async fn claims_at_once_never_take_one_run_nor_wait_for_each_other() {
    let stage = Stage::new();
    let store = stage.open().await;
    let (first, second) = (joined(&store).await, joined(&store).await);
    let third = joined(&store).await;
    for _ in 0..4 {
        started(&store).await;
    }
    // A claim measures the histories of runs that were claimed before, with their rows locked.
    for claimed in store.claim(claim_of(first, 1)).await.unwrap().runs {
        store.settle(claimed.lease, Settle::new(vec![], End::Released)).await.unwrap();
    }
    let raw = stage.raw().await;
    raw.batch_execute("begin; lock table records in access exclusive mode").await.unwrap();
    let some = store.claim(Claim { limit: 3, ..claim_of(first, 2) });
    stage.waiting(1).await;
    let rest = store.claim(claim_of(second, 2));
    stage.waiting(2).await;
    let none = store.claim(claim_of(third, 2));
    assert!(soon(none).await.unwrap().runs.is_empty());

    let_go(&raw).await;
    let (some, rest) = (soon(some).await.unwrap().runs, soon(rest).await.unwrap().runs);
    assert_eq!((some.len(), rest.len()), (3, 1));
    assert!(some.iter().all(|claimed| claimed.lease.run != rest[0].lease.run));
}

/// Fails where the fence is a share lock on the worker's row.
#[tokio::test]
async fn a_renewal_does_not_wait_for_an_open_batch() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let raw = stage.raw().await;
    hold_step(&raw, lease.run, "a").await;
    let written = store.record(lease, vec![done(&store, 1, "a")].into());
    stage.waiting(1).await;
    soon(store.renew(worker)).await.unwrap();
    stage.waiting(1).await;
    let_go(&raw).await;
    soon(written).await.unwrap();
}

/// Fails where a batch waits for somebody's lock as long as that pleases: its client has given up,
/// and the fence that it still holds stops every sweep.
#[tokio::test]
async fn a_batch_that_waits_for_a_stranger_lets_go_of_the_fence() {
    let play = Takeover::new().await;
    let raw = play.stage.raw().await;
    hold_step(&raw, play.lease.run, "a").await;
    let written = play.here.record(play.lease, vec![done(&play.here, 1, "a")].into());
    play.stage.waiting(1).await;
    let swept = play.sweep().await;
    let refused = soon(written).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(Outage::Locked, _)), "{refused}");
    assert_eq!(soon(swept).await.unwrap().taken, [play.lease.run]);
    let_go(&raw).await;
}
